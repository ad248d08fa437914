/* What the compiled kernels (_counter.c and _channels.c here, _blocks.c of quantizer/numerics) need to know of the compiler
 * and the processor, and share.
 *
 * X86: kernels for AVX2 and AVX-512 can be compiled; the processor is asked at run time whether it has them. ARM: NEON,
 * which every 64-bit Arm processor has. GCC and Clang compile a function for more than the target they were started for
 * where AVX2 or AVX512 stands before it; MSVC compiles intrinsics anywhere, and vectorises for its target alone.
 *
 * No compiler may fuse a product and a sum, except where the source asks for it: everywhere the bytes of numpy.
 */
#ifndef QPROF_PLATFORM_H
#define QPROF_PLATFORM_H

#include <Python.h>

#include <stdint.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define RESTRICT restrict
#elif defined(_MSC_VER)
#include <intrin.h>
#define INLINE static __forceinline
#define RESTRICT __restrict
#pragma fp_contract(off)
#else
#define INLINE static inline
#define RESTRICT
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#if (defined(__x86_64__) && defined(__GNUC__)) || (defined(_M_X64) && !defined(_M_ARM64EC) && defined(_MSC_VER))
#define X86 1
#include <immintrin.h>
#else
#define X86 0
#endif
#if defined(__aarch64__) || (defined(_M_ARM64) && defined(_MSC_VER))
#define ARM 1
#include <arm_neon.h>
#else
#define ARM 0
#endif

#if X86 && defined(__GNUC__)
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#else
#define AVX2
#define AVX512
#endif

#if X86
/* What a vector was read from is not read again, though another thread may write there. */
#if defined(__GNUC__)
#define READ_ONCE(v) __asm__("" : "+v"(v))
#define POPCOUNT __builtin_popcount
#else
#define READ_ONCE(v) _ReadWriteBarrier()
#define POPCOUNT (int)__popcnt
#endif

/* The instruction sets that processor and operating system have: 0 for none here, 1 for AVX2, 2 for AVX-512 too. */
static int x86_level(void) {
#if defined(__GNUC__)
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") != 0;
    const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    int leaf[4], avx2 = 0, avx512 = 0;
    __cpuid(leaf, 0);
    const int leaves = leaf[0];
    __cpuid(leaf, 1);
    if (leaves >= 7 && (leaf[2] & 1 << 27) && (leaf[2] & 1 << 28)) { /* XGETBV, AVX */
        const unsigned int saved = (unsigned int)_xgetbv(0); /* the registers that the operating system saves */
        const unsigned int wanted = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
        __cpuidex(leaf, 7, 0);
        avx2 = (saved & 0x06) == 0x06 && (leaf[1] & 1 << 5);
        avx512 = (saved & 0xe6) == 0xe6 && ((unsigned int)leaf[1] & wanted) == wanted;
    }
#endif
    return avx2 ? 1 + avx512 : 0;
}
#endif

/* Sets the floating-point state that numpy computes in, and returns the one before: another library may have set
 * denormal numbers to be zero. */
static uint64_t set_float_state(uint64_t state) {
    uint64_t before = state;
#if X86
    before = _mm_getcsr();
    _mm_setcsr((unsigned int)state);
#elif ARM && defined(__GNUC__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
    __asm__ volatile("msr fpcr, %0" : : "r"(state) : "memory");
#elif ARM
    before = (uint64_t)_ReadStatusReg(0x5a20); /* FPCR */
    _WriteStatusReg(0x5a20, (__int64)state);
#endif
    return before;
}

/* To the nearest, nothing flushed to zero, no traps. */
enum { FLOAT_STATE = X86 ? 0x1f80 : 0 };

/* The names as a tuple; NULL and an exception where there is no memory. */
static PyObject *tuple_of(const char *const *names, int n) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple != NULL && i < n; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (name == NULL || PyTuple_SetItem(tuple, i, name) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

#endif
