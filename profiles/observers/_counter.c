/* The compiled kernel of profiles/observers/histogram_counter.py: ranges and histograms of float elements in one pass
 * over memory.
 *
 * An array is processed in blocks that stay in the first-level cache. Each block is scanned (range, zeros, finite or
 * not) and its bin indices are computed while the indices of the previous block are counted: a processor finishes
 * about one increment in memory per cycle, and can do the arithmetic of the next block at the same time. The first
 * block that does not fit into the caller's bins stops the count: the remainder of the array is only scanned, and the
 * caller widens its bins and counts the remainder.
 *
 * Many arrays are counted in one call, which releases the GIL once, unless they are short altogether. Arrays are not
 * copied, and the best instruction set is chosen at run time. The results are exactly those of the reference
 * implementation in numpy.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "_platform.h"

enum {
    BLOCK = 1024,     /* elements scanned before they are counted */
    LANES = 16,       /* blocks of a vector kernel are a multiple of this long */
    AHEAD = 8192,     /* bytes from here that are fetched now: an array may have left the cache */
    MAX_BINS = 2000,
    TABLES = 4,       /* count tables: neighbours often share a bin, and increments of one cell wait for each other */
    SMALL = 1024,     /* arrays below this length are counted without count tables */
    MAX_INDEX = 1 << 30, /* larger first indices are left to the reference implementation */
    RELEASE = 32768,  /* elements from which on the GIL is released */
    FLUSH = 250,      /* blocks after which 16-bit count tables could overflow: 250 * (1024 / 4 + 3) < 65536 */
};

/* The range of a block. `finite` is 0 where an element is NaN or infinite; the other fields are undefined then. */
typedef struct {
    double low, high;
    int zeros, finite;
} block_range;

typedef struct {
    double minimum, maximum; /* range of the elements that are counted */
    double scale;            /* 2**-exponent */
    int64_t first;
    Py_ssize_t bins;
    int64_t *counts;
} grid;

/* Counts in short numbers, added to the grid's every FLUSH blocks. */
typedef struct {
    uint16_t tables[TABLES][MAX_BINS + 16];
    int blocks;
} short_counts;

/* Indices of a block that fits the grid, not counted yet. */
typedef struct {
    uint16_t index[BLOCK + LANES];
    int n;
} pending;

typedef block_range (*scan_float)(const float *x, int n);
typedef int (*index_float)(const float *x, int n, float scale, int32_t first, int16_t last, uint16_t *out);
typedef block_range (*scan_double)(const double *x, int n);
typedef int (*index_double)(const double *x, int n, double scale, int32_t first, int16_t last, uint16_t *out);
typedef void (*widen_half)(const uint16_t *x, int n, float *out);
typedef void (*add_tables)(const short_counts *t, int64_t *counts, Py_ssize_t bins);

/* Scans a block, writes its indices to `out`, and counts the indices of `before` in the count tables. Indices are
 * undefined where the block does not fit. With `drop_zeros`, zeros have no index: the range has their number. */
typedef block_range (*step_float)(const float *x, int n, float scale, int32_t first, int drop_zeros, pending *out,
                                  short_counts *t, const pending *before);

/* --- in plain C, vectorised by the compiler for its target architecture ------------------------------- */

/* Bit patterns are converted to integers of the same order: integer minima vectorise under all compiler flags. */
#define SCAN_BODY(REAL, SIGNED, LARGEST, INFINITE)                                                             \
    SIGNED low = LARGEST, high = -LARGEST - 1;                                                                 \
    int zeros = 0, bad = 0;                                                                                    \
    for (int i = 0; i < n; i++) {                                                                              \
        SIGNED bits;                                                                                           \
        memcpy(&bits, x + i, sizeof bits);                                                                     \
        const SIGNED size = bits & LARGEST, key = bits ^ ((bits >> (8 * sizeof bits - 1)) & LARGEST);          \
        zeros += size == 0;                                                                                    \
        bad |= size >= INFINITE;                                                                               \
        low = key < low ? key : low;                                                                           \
        high = key > high ? key : high;                                                                        \
    }                                                                                                          \
    low ^= (low >> (8 * sizeof low - 1)) & LARGEST;                                                            \
    high ^= (high >> (8 * sizeof high - 1)) & LARGEST;                                                         \
    REAL lowest, highest;                                                                                      \
    memcpy(&lowest, &low, sizeof lowest);                                                                      \
    memcpy(&highest, &high, sizeof highest);                                                                   \
    return (block_range){lowest, highest, zeros, !bad}

/* floor(x * scale) - first. The product is exact, or so small that it rounds to zero: then the sign decides. */
#define INDEX_OF(REAL)                                                                                         \
    const REAL scaled = x[i] * scale;                                                                          \
    const int32_t whole = (int32_t)scaled;                                                                     \
    const int below = ((REAL)whole > scaled) | ((x[i] < 0) & (scaled == 0));                                   \
    const int32_t index = whole - below - first

/* The range of the block was looked at before, and another thread may have written into the array since: no index may
 * leave the counts. Where nobody writes, indices are 0 to `last` and this changes none. (Signed numbers of 16 bits, as
 * every x86 compares them.) */
INLINE uint16_t inside(int32_t index, int16_t last) {
    const int16_t low = (int16_t)(index & INT16_MAX);
    return (uint16_t)(low < last ? low : last);
}

INLINE block_range scan_float_body(const float *x, int n) { SCAN_BODY(float, int32_t, INT32_MAX, 0x7f800000); }

INLINE block_range scan_double_body(const double *x, int n) {
    SCAN_BODY(double, int64_t, INT64_MAX, 0x7ff0000000000000);
}

INLINE int index_float_body(const float *RESTRICT x, int n, float scale, int32_t first, int16_t last,
                            uint16_t *RESTRICT out) {
    for (int i = 0; i < n; i++) {
        INDEX_OF(float);
        out[i] = inside(index, last);
    }
    return n;
}

/* Without branches, so that the loop vectorises. The exponent grows by 112; that of infinities and NaN once more. */
INLINE void widen_half_body(const uint16_t *RESTRICT x, int n, float *RESTRICT out) {
    for (int i = 0; i < n; i++) {
        const int32_t rest = x[i] & 0x7fff, large = -(rest >= 0x7c00), tiny = -(rest < 0x0400);
        const float multiple = 5.9604644775390625e-8f * (float)rest; /* of 2**-24 */
        int32_t bits;
        memcpy(&bits, &multiple, sizeof bits);
        bits = (bits & tiny) | (((rest << 13) + (112 << 23) + ((112 << 23) & large)) & ~tiny);
        bits |= (int32_t)((uint32_t)(x[i] & 0x8000u) << 16);
        memcpy(out + i, &bits, sizeof bits);
    }
}

static block_range scan_float_plain(const float *x, int n) { return scan_float_body(x, n); }
static block_range scan_double_plain(const double *x, int n) { return scan_double_body(x, n); }
static int index_float_plain(const float *x, int n, float scale, int32_t first, int16_t last, uint16_t *out) {
    return index_float_body(x, n, scale, first, last, out);
}
static int index_double_plain(const double *x, int n, double scale, int32_t first, int16_t last, uint16_t *out) {
    for (int i = 0; i < n; i++) {
        INDEX_OF(double);
        out[i] = (uint16_t)index;
    }
    for (int i = 0; i < n; i++) out[i] = inside(out[i], last); /* this loop is vectorised, the other is not */
    return n;
}
static void widen_half_plain(const uint16_t *x, int n, float *out) { widen_half_body(x, n, out); }

/* --- increments ----------------------------------------------------------------------------------------- */

#define ADD_FOUR(t, from)                                                                                      \
    do {                                                                                                       \
        (t)->tables[0][(from)[0]]++;                                                                           \
        (t)->tables[1][(from)[1]]++;                                                                           \
        (t)->tables[2][(from)[2]]++;                                                                           \
        (t)->tables[3][(from)[3]]++;                                                                           \
    } while (0)

INLINE void add_indices(short_counts *t, const uint16_t *index, int n) {
    int i = 0;
    for (; i + TABLES <= n; i += TABLES) ADD_FOUR(t, index + i);
    for (; i < n; i++) t->tables[0][index[i]]++;
}

INLINE void add_tables_body(const short_counts *t, int64_t *counts, Py_ssize_t bins) {
    for (Py_ssize_t b = 0; b < bins; b++)
        counts[b] += t->tables[0][b] + t->tables[1][b] + t->tables[2][b] + t->tables[3][b];
}

static void add_tables_plain(const short_counts *t, int64_t *counts, Py_ssize_t bins) {
    add_tables_body(t, counts, bins);
}

#if X86
INLINE int index_double_body(const double *RESTRICT x, int n, double scale, int32_t first, int16_t last,
                             uint16_t *RESTRICT out) {
    for (int i = 0; i < n; i++) {
        INDEX_OF(double);
        out[i] = inside(index, last);
    }
    return n;
}

AVX2 static void add_tables_avx2(const short_counts *t, int64_t *counts, Py_ssize_t bins) {
    add_tables_body(t, counts, bins);
}
AVX2 static block_range scan_float_avx2(const float *x, int n) { return scan_float_body(x, n); }
AVX2 static block_range scan_double_avx2(const double *x, int n) { return scan_double_body(x, n); }
AVX2 static int index_float_avx2(const float *x, int n, float scale, int32_t first, int16_t last, uint16_t *out) {
    return index_float_body(x, n, scale, first, last, out);
}
AVX2 static int index_double_avx2(const double *x, int n, double scale, int32_t first, int16_t last, uint16_t *out) {
    return index_double_body(x, n, scale, first, last, out);
}

/* --- AVX-512: lengths are multiples of LANES ------------------------------------------------------------ */

AVX512 static block_range scan_float_avx512(const float *x, int n) {
    const __m512 none = _mm512_setzero_ps();
    const __m512i magnitude = _mm512_set1_epi32(INT32_MAX);
    __m512 low = _mm512_set1_ps(FLT_MAX), high = _mm512_set1_ps(-FLT_MAX), poison = none;
    int zeros = 0;
    for (int i = 0; i < n; i += LANES) {
        const __m512 v = _mm512_loadu_ps(x + i);
        low = _mm512_min_ps(v, low);
        high = _mm512_max_ps(v, high);
        poison = _mm512_fmadd_ps(v, none, poison); /* NaN once an element is not finite */
        zeros += POPCOUNT(_mm512_testn_epi32_mask(_mm512_castps_si512(v), magnitude));
    }
    const int finite = _mm512_cmp_ps_mask(poison, poison, _CMP_UNORD_Q) == 0;
    return (block_range){_mm512_reduce_min_ps(low), _mm512_reduce_max_ps(high), zeros, finite};
}

/* Indices of a vector. Only a factor below 1 can make a product too small: `fix` checks for it. */
#define INDEX_16(v)                                                                                            \
    __m512i whole = _mm512_cvt_roundps_epi32(_mm512_mul_ps(v, scales), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); \
    if (fix) {                                                                                                \
        const __mmask16 zero = _mm512_testn_epi32_mask(whole, whole);                                          \
        const __mmask16 below = _mm512_mask_cmp_ps_mask(zero, v, _mm512_setzero_ps(), _CMP_LT_OQ);             \
        whole = _mm512_mask_sub_epi32(whole, below, whole, _mm512_set1_epi32(1));                              \
    }                                                                                                          \
    whole = _mm512_sub_epi32(whole, firsts)

AVX512 INLINE block_range step_float_512(const float *x, int n, float scale, int32_t first, int drop_zeros, int fix,
                                         pending *RESTRICT out, short_counts *RESTRICT t,
                                         const pending *RESTRICT before) {
    const __m512 scales = _mm512_set1_ps(scale), none = _mm512_setzero_ps();
    const __m512i firsts = _mm512_set1_epi32(first), magnitude = _mm512_set1_epi32(INT32_MAX);
    __m512 low = _mm512_set1_ps(FLT_MAX), high = _mm512_set1_ps(-FLT_MAX), poison = none;
    int others = 0, counted = 0;
    for (int i = 0; i < n; i += LANES) {
        _mm_prefetch((const char *)(x + i) + AHEAD, _MM_HINT_T0);
        __m512 v = _mm512_loadu_ps(x + i);
        READ_ONCE(v); /* range and indices are those of the same elements */
        low = _mm512_min_ps(v, low);
        high = _mm512_max_ps(v, high);
        poison = _mm512_fmadd_ps(v, none, poison); /* NaN once an element is not finite */
        const __mmask16 other = _mm512_test_epi32_mask(_mm512_castps_si512(v), magnitude);
        INDEX_16(v);
        if (drop_zeros) {
            whole = _mm512_maskz_compress_epi32(other, whole);
            _mm256_storeu_si256((void *)(out->index + others), _mm512_cvtepi32_epi16(whole));
        } else {
            _mm256_storeu_si256((void *)(out->index + i), _mm512_cvtepi32_epi16(whole));
        }
        others += POPCOUNT(other);
        if (counted + LANES <= before->n) {
            for (int k = 0; k < LANES; k += TABLES) ADD_FOUR(t, before->index + counted + k);
            counted += LANES;
        }
    }
    add_indices(t, before->index + counted, before->n - counted);
    out->n = drop_zeros ? others : n;
    const int finite = _mm512_cmp_ps_mask(poison, poison, _CMP_UNORD_Q) == 0;
    return (block_range){_mm512_reduce_min_ps(low), _mm512_reduce_max_ps(high), n - others, finite};
}

AVX512 static block_range step_float_avx512(const float *x, int n, float scale, int32_t first, int drop_zeros,
                                            pending *out, short_counts *t, const pending *before) {
    if (scale < 1.0f) return step_float_512(x, n, scale, first, drop_zeros, 1, out, t, before);
    return drop_zeros ? step_float_512(x, n, scale, first, 1, 0, out, t, before)
                      : step_float_512(x, n, scale, first, 0, 0, out, t, before);
}

AVX512 static void widen_half_avx512(const uint16_t *x, int n, float *out) {
    for (int i = 0; i < n; i += LANES)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(x + i))));
}
#endif

#if ARM
/* --- NEON: lengths are multiples of LANES --------------------------------------------------------------- */

static block_range scan_float_neon(const float *x, int n) {
    const float32x4_t none = vdupq_n_f32(0.0f);
    float32x4_t low[2], high[2], poison[2]; /* two each: the steps of one wait for each other */
    uint32x4_t zeros[2];
    for (int k = 0; k < 2; k++) {
        low[k] = vdupq_n_f32(FLT_MAX);
        high[k] = vdupq_n_f32(-FLT_MAX);
        poison[k] = none;
        zeros[k] = vdupq_n_u32(0);
    }
    for (int i = 0; i < n; i += 8) {
        for (int k = 0; k < 2; k++) {
            const float32x4_t v = vld1q_f32(x + i + 4 * k);
            low[k] = vminq_f32(low[k], v);
            high[k] = vmaxq_f32(high[k], v);
            poison[k] = vfmaq_f32(poison[k], v, none); /* NaN once an element is not finite */
            zeros[k] = vsubq_u32(zeros[k], vceqzq_f32(v));
        }
    }
    const int finite = vaddvq_f32(vaddq_f32(poison[0], poison[1])) == 0.0f;
    return (block_range){vminvq_f32(vminq_f32(low[0], low[1])), vmaxvq_f32(vmaxq_f32(high[0], high[1])),
                         (int)vaddvq_u32(vaddq_u32(zeros[0], zeros[1])), finite};
}

/* Indices of four elements. Only a factor below 1 can make a product too small: `fix` checks for it. */
INLINE int32x4_t index_four(float32x4_t v, float32x4_t scale, int32x4_t first, int fix) {
    int32x4_t whole = vcvtmq_s32_f32(vmulq_f32(v, scale)); /* floor */
    if (fix) {
        const uint32x4_t below = vandq_u32(vceqzq_s32(whole), vcltzq_f32(v));
        whole = vaddq_s32(whole, vreinterpretq_s32_u32(below));
    }
    return vsubq_s32(whole, first);
}

INLINE void index_float_scaled(const float *RESTRICT x, int n, float scale, int32_t first, int16_t last, int fix,
                               uint16_t *RESTRICT out) {
    const float32x4_t scales = vdupq_n_f32(scale);
    const int32x4_t firsts = vdupq_n_s32(first);
    const int16x8_t lasts = vdupq_n_s16(last), positive = vdupq_n_s16(INT16_MAX);
    for (int i = 0; i < n; i += 8) {
        const int32x4_t a = index_four(vld1q_f32(x + i), scales, firsts, fix);
        const int32x4_t b = index_four(vld1q_f32(x + i + 4), scales, firsts, fix);
        const int16x8_t index = vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)); /* the low halves */
        vst1q_u16(out + i, vreinterpretq_u16_s16(vminq_s16(vandq_s16(index, positive), lasts))); /* as `inside` */
    }
}

static int index_float_neon(const float *x, int n, float scale, int32_t first, int16_t last, uint16_t *out) {
    if (scale < 1.0f) index_float_scaled(x, n, scale, first, last, 1, out);
    else index_float_scaled(x, n, scale, first, last, 0, out);
    return n;
}

static void widen_half_neon(const uint16_t *x, int n, float *out) {
    for (int i = 0; i < n; i += 4) vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
}
#endif

/* --- the choice ----------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    int lanes;             /* lengths must be a multiple of it */
    step_float step_float; /* NULL where scanning, indexing and counting are separate steps */
    scan_float scan_float;
    index_float index_float;
    scan_double scan_double;
    index_double index_double;
    widen_half widen_half;
    add_tables add_tables;
} kernels;

static const kernels plain = {"plain",           1, NULL, scan_float_plain, index_float_plain, scan_double_plain,
                              index_double_plain, widen_half_plain, add_tables_plain};
#if X86
static const kernels avx2 = {"avx2",           1, NULL, scan_float_avx2, index_float_avx2, scan_double_avx2,
                             index_double_avx2, widen_half_plain, add_tables_avx2};
static const kernels avx512 = {"avx512",          LANES, step_float_avx512, scan_float_avx512, index_float_avx2,
                               scan_double_avx2, index_double_avx2, widen_half_avx512, add_tables_avx2};
#elif ARM
static const kernels neon = {"neon",            LANES, NULL, scan_float_neon, index_float_neon, scan_double_plain,
                             index_double_plain, widen_half_neon, add_tables_plain};
#endif

/* Return the kernels that this processor can run, best first; the last is `plain`. */
static int available(const kernels *usable[3]) {
    int n = 0;
#if X86
    const int level = x86_level();
    if (level >= 2) usable[n++] = &avx512;
    if (level >= 1) usable[n++] = &avx2;
#elif ARM
    usable[n++] = &neon;
#endif
    usable[n++] = &plain;
    return n;
}

/* --- counting ------------------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t stop; /* elements before it are counted */
    double low, high; /* range of the finite elements from there on */
    int64_t zeros;    /* among the counted */
    int64_t nan, inf; /* from `stop` on */
    double lowest, highest; /* range of the counted */
} result;

static void clear(short_counts *t, const grid *g) {
    for (int k = 0; k < TABLES; k++) memset(t->tables[k], 0, (size_t)g->bins * sizeof(uint16_t));
    t->blocks = 0;
}

/* Return the elements from `at` on as float or double; other types are converted into `buffer`. */
INLINE const void *block_at(const kernels *k, char type, const void *x, Py_ssize_t at, int n, float *buffer) {
    if (type == 'f') return (const float *)x + at;
    if (type == 'd') return (const double *)x + at;
    const uint16_t *from = (const uint16_t *)x + at;
    if (type == 'e') {
        (n % k->lanes ? plain.widen_half : k->widen_half)(from, n, buffer);
    } else {
        for (int i = 0; i < n; i++) {
            const uint32_t bits = (uint32_t)from[i] << 16; /* bfloat16 */
            memcpy(buffer + i, &bits, sizeof bits);
        }
    }
    return buffer;
}

INLINE void note_counted(result *r, const block_range *s) {
    r->zeros += s->zeros;
    r->lowest = s->low < r->lowest ? s->low : r->lowest;
    r->highest = s->high > r->highest ? s->high : r->highest;
}

static void scan_remainder(const kernels *best, char type, const void *x, Py_ssize_t at, Py_ssize_t n, result *r) {
    float buffer[BLOCK];
    for (int m; at < n; at += m) {
        m = n - at < BLOCK ? (int)(n - at) : BLOCK;
        const kernels *k = m % best->lanes ? &plain : best;
        const void *block = block_at(k, type, x, at, m, buffer);
        const block_range s = type == 'd' ? k->scan_double(block, m) : k->scan_float(block, m);
        if (s.finite) {
            r->low = s.low < r->low ? s.low : r->low;
            r->high = s.high > r->high ? s.high : r->high;
            continue;
        }
        for (int i = 0; i < m; i++) {
            const double v = type == 'd' ? ((const double *)block)[i] : ((const float *)block)[i];
            if (v != v) {
                r->nan++;
            } else if (v - v != 0.0) {
                r->inf++;
            } else {
                r->low = v < r->low ? v : r->low;
                r->high = v > r->high ? v : r->high;
            }
        }
    }
}

INLINE int fits(const block_range *s, const grid *g) {
    return s->finite && s->low >= g->minimum && s->high <= g->maximum;
}

/* Scan a block and write its indices to `out`; count the indices of `before` as well. */
static block_range step(const kernels *k, char type, const void *block, int m, const grid *g, int drop, pending *out,
                        short_counts *t, const pending *before) {
    if (type != 'd' && k->step_float != NULL)
        return k->step_float(block, m, (float)g->scale, (int32_t)g->first, drop, out, t, before);
    add_indices(t, before->index, before->n);
    const block_range s = type == 'd' ? k->scan_double(block, m) : k->scan_float(block, m);
    const int16_t last = (int16_t)(g->bins - 1);
    if (fits(&s, g))
        out->n = type == 'd' ? k->index_double(block, m, g->scale, (int32_t)g->first, last, out->index)
                             : k->index_float(block, m, (float)g->scale, (int32_t)g->first, last, out->index);
    return s;
}

/* Count long arrays with count tables. */
static Py_ssize_t count_long(const kernels *best, char type, const void *x, Py_ssize_t at, Py_ssize_t n, const grid *g,
                             result *r) {
    short_counts t;
    pending work[2];
    float buffer[BLOCK];
    int now = 0, drop = 0;
    clear(&t, g);
    work[0].n = work[1].n = 0;
    while (at < n) {
        int m = n - at < BLOCK ? (int)(n - at) : BLOCK;
        const kernels *k = best;
        if (m >= k->lanes) m -= m % k->lanes;
        else k = &plain;
        const int dropped = drop && k->step_float != NULL && type != 'd';
        const block_range s = step(k, type, block_at(k, type, x, at, m, buffer), m, g, dropped, &work[now], &t,
                                   &work[!now]);
        work[!now].n = 0;
        if (++t.blocks == FLUSH) {
            best->add_tables(&t, g->counts, g->bins);
            clear(&t, g);
        }
        if (!fits(&s, g)) {
            work[now].n = 0;
            break;
        }
        if (dropped) g->counts[-g->first] += s.zeros;
        note_counted(r, &s);
        drop = s.zeros * 16 > m; /* prediction for the next block */
        at += m;
        now = !now;
    }
    add_indices(&t, work[!now].index, work[!now].n);
    best->add_tables(&t, g->counts, g->bins);
    return at;
}

/* Count short arrays, or all into one bin, without count tables. */
static Py_ssize_t count_short(const kernels *best, char type, const void *x, Py_ssize_t at, Py_ssize_t n,
                              const grid *g, result *r) {
    float buffer[BLOCK];
    uint16_t index[BLOCK + LANES];
    const int16_t last = (int16_t)(g->bins - 1);
    for (int m; at < n; at += m) {
        m = n - at < BLOCK ? (int)(n - at) : BLOCK;
        const kernels *k = best;
        if (m >= k->lanes) m -= m % k->lanes;
        else k = &plain;
        const void *block = block_at(k, type, x, at, m, buffer);
        const block_range s = type == 'd' ? k->scan_double(block, m) : k->scan_float(block, m);
        if (!fits(&s, g)) break;
        note_counted(r, &s);
        if (g->bins == 1) {
            g->counts[0] += m;
            continue;
        }
        if (type == 'd') k->index_double(block, m, g->scale, (int32_t)g->first, last, index);
        else k->index_float(block, m, (float)g->scale, (int32_t)g->first, last, index);
        for (int i = 0; i < m; i++) g->counts[index[i]]++;
    }
    return at;
}

static void advance_array(const kernels *best, char type, const void *x, Py_ssize_t n, const grid *g, result *r) {
    const int is_long = n >= SMALL && g->bins > 1;
    r->stop = (is_long ? count_long : count_short)(best, type, x, 0, n, g, r);
    scan_remainder(best, type, x, r->stop, n, r);
}

/* --- Python --------------------------------------------------------------------------------------------- */

/* An array and the bins that it is counted into. */
typedef struct {
    Py_buffer x, counts, zeros;
    char type; /* f, d, e; b for bfloat16 */
    Py_ssize_t n;
    grid grid;
    int in_reach; /* whether the kernels can compute the indices */
    result counted;
} job;

static void release(job *jobs, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        PyBuffer_Release(&jobs[i].x);
        PyBuffer_Release(&jobs[i].counts);
        PyBuffer_Release(&jobs[i].zeros);
    }
    PyMem_Free(jobs);
}

/* Return the type of an array's elements, 0 where it is none of f, d, e and H in native byte order, aligned. */
static char format_of(const Py_buffer *x) {
    const char format = x->format != NULL && x->format[0] != 0 && x->format[1] == 0 ? x->format[0] : 0;
    const Py_ssize_t size = format == 'd' ? 8 : format == 'f' ? 4 : format == 'e' || format == 'H' ? 2 : 0;
    return x->itemsize == size ? format : 0;
}

/* Return whether every number of the range has its index among the bins. Negative numbers have negative indices, even
 * where the product is so small that it rounds to zero. */
static int range_in_bins(const grid *g) {
    const double first = (double)g->first, end = first + (double)g->bins;
    const double low = g->minimum * g->scale, high = g->maximum * g->scale;
    return low >= first && (g->minimum >= 0 || first < 0) && (high < end || (g->maximum < 0 && end >= 0));
}

/* Return the error of a job, NULL for none, and fill in its computed fields. */
static const char *complete(job *j, int exponent) {
    const char format = format_of(&j->x);
    grid *g = &j->grid;
    if (format == 0) return "arrays must be of f, d, e or H";
    if (j->counts.len % (Py_ssize_t)sizeof(int64_t) || j->counts.len > MAX_BINS * (Py_ssize_t)sizeof(int64_t))
        return "counts must hold at most 2000 int64";
    if (j->zeros.len != sizeof(int64_t)) return "zeros must be one int64";
    j->type = format == 'H' ? 'b' : format;
    j->n = j->x.len / j->x.itemsize;
    g->bins = j->counts.len / (Py_ssize_t)sizeof(int64_t);
    g->counts = j->counts.buf;
    g->scale = ldexp(1.0, -exponent);
    if (g->bins < 1 && g->minimum <= g->maximum) return "a range needs bins";
    /* the factor must be a normal number of the array's type */
    const int reach = format == 'd' ? 1022 : 126;
    j->in_reach = g->bins < 2 || (exponent >= -reach && exponent <= reach && g->first >= -MAX_INDEX &&
                                  g->first <= MAX_INDEX);
    if (g->bins > 1 && g->minimum <= g->maximum && j->in_reach && !range_in_bins(g))
        return "the range must lie in the bins";
    j->counted = (result){0, INFINITY, -INFINITY, 0, 0, 0, INFINITY, -INFINITY};
    return NULL;
}

/* Fill in a job; the caller's bins are (minimum, maximum, exponent, first, counts, zeros). Returns 0 on an error. */
static int parse(PyObject *array, PyObject *bins, job *j) {
    int exponent;
    long long first;
    memset(j, 0, sizeof *j);
    if (array == NULL || bins == NULL) return 0; /* reading an array ran code that made a list shorter */
    if (!PyTuple_Check(bins)) {
        PyErr_SetString(PyExc_TypeError, "bins must be tuples");
        return 0;
    }
    if (!PyArg_ParseTuple(bins, "ddiLw*w*", &j->grid.minimum, &j->grid.maximum, &exponent, &first, &j->counts,
                          &j->zeros))
        return 0;
    j->grid.first = first;
    const char *wrong = NULL;
    if (PyObject_GetBuffer(array, &j->x, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) {
        if ((wrong = complete(j, exponent)) == NULL) return 1;
        PyErr_SetString(PyExc_ValueError, wrong);
    }
    PyBuffer_Release(&j->x);
    PyBuffer_Release(&j->counts);
    PyBuffer_Release(&j->zeros);
    return 0;
}

/* Count without Python: the jobs hold the buffers of all memory that is used. */
static void count_jobs(const kernels *k, job *jobs, Py_ssize_t n) {
    const uint64_t state = set_float_state(FLOAT_STATE);
    for (job *j = jobs; j < jobs + n; j++) {
        if (j->in_reach) advance_array(k, j->type, j->x.buf, j->n, &j->grid, &j->counted);
        else scan_remainder(k, j->type, j->x.buf, 0, j->n, &j->counted);
        *(int64_t *)j->zeros.buf += j->counted.zeros;
    }
    set_float_state(state);
}

/* Widen the ranges, a low and a high number for each job, to those of the finite elements. */
static void widen_ranges(const job *jobs, Py_ssize_t n, double *ranges) {
    for (Py_ssize_t i = 0; i < n; i++) {
        const result *r = &jobs[i].counted;
        const double low = r->low < r->lowest ? r->low : r->lowest, high = r->high > r->highest ? r->high : r->highest;
        /* Adding 0.0 turns -0.0 into 0.0. */
        if (low < ranges[2 * i]) ranges[2 * i] = low + 0.0;
        if (high > ranges[2 * i + 1]) ranges[2 * i + 1] = high + 0.0;
    }
}

/* Return (index of the job, stop, low, high, nan, inf) of each job that is not counted completely. */
static PyObject *unfinished(const job *jobs, Py_ssize_t n) {
    PyObject *remainders = PyList_New(0);
    for (Py_ssize_t i = 0; remainders != NULL && i < n; i++) {
        const result *r = &jobs[i].counted;
        if (r->stop == jobs[i].n) continue;
        /* Adding 0.0 turns -0.0 into 0.0. */
        PyObject *one = Py_BuildValue("nnddLL", i, r->stop, r->low + 0.0, r->high + 0.0, (long long)r->nan,
                                      (long long)r->inf);
        if (one == NULL || PyList_Append(remainders, one) < 0) {
            Py_DECREF(remainders);
            remainders = NULL;
        }
        Py_XDECREF(one);
    }
    return remainders;
}

/* Count arrays; `ranges` has no buffer where none are wanted. */
static PyObject *counted(PyObject *arrays, PyObject *bins, int level, const Py_buffer *ranges) {
    const kernels *usable[3];
    const Py_ssize_t n = PyList_Size(arrays);
    if (level < 0 || level >= available(usable) || n != PyList_Size(bins)) {
        PyErr_SetString(PyExc_ValueError, n == PyList_Size(bins) ? "no such level" : "each array needs its bins");
        return NULL;
    }
    if (ranges->buf != NULL && ranges->len != 2 * n * (Py_ssize_t)sizeof(double)) {
        PyErr_SetString(PyExc_ValueError, "ranges must hold two numbers for each array");
        return NULL;
    }
    job *jobs = PyMem_Malloc((size_t)(n ? n : 1) * sizeof *jobs);
    if (jobs == NULL) return PyErr_NoMemory();
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!parse(PyList_GetItem(arrays, i), PyList_GetItem(bins, i), &jobs[i])) {
            release(jobs, i);
            return NULL;
        }
        total += jobs[i].n;
    }
    /* Taking the GIL back may take longer than counting a few elements. */
    PyThreadState *saved = total >= RELEASE ? PyEval_SaveThread() : NULL;
    count_jobs(usable[level], jobs, n);
    if (saved != NULL) PyEval_RestoreThread(saved);
    if (ranges->buf != NULL) widen_ranges(jobs, n, ranges->buf);
    PyObject *remainders = unfinished(jobs, n);
    release(jobs, n);
    return remainders;
}

static PyObject *advance(PyObject *module, PyObject *args) {
    PyObject *arrays, *bins;
    Py_buffer ranges = {0};
    int level;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!i|w*", &PyList_Type, &arrays, &PyList_Type, &bins, &level, &ranges)) return NULL;
    PyObject *remainders = counted(arrays, bins, level, &ranges);
    if (ranges.obj != NULL) PyBuffer_Release(&ranges);
    return remainders;
}

static PyObject *levels(PyObject *module, PyObject *args) {
    const kernels *usable[3];
    const char *names[3];
    (void)module;
    (void)args;
    const int n = available(usable);
    for (int i = 0; i < n; i++) names[i] = usable[i]->name;
    return tuple_of(names, n);
}

static PyMethodDef methods[] = {
    {"advance", advance, METH_VARARGS,
     "advance(arrays, bins, level, ranges) -> [(number, stop, low, high, nan, inf)]"},
    {"levels", levels, METH_NOARGS, "levels() -> names of the instruction sets that can be used, best first"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_counter", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__counter(void) { return PyModule_Create(&definition); }
