/* The compiled kernel of profiles/observers/channel_counter.py: per-channel ranges and sums of a tensor.
 *
 * A unit is a run of `inner` vectors of `lanes` channels that are neighbours in memory; one lane is a plane of a
 * single channel. Units are processed in strips of 16 floats by some rows, in one pass: range, finite or not, and
 * the values and their squares, rounded to grids and added as integers, so that the order of addition does not
 * matter. Where a value is too large for the grids of its channel, coarser grids are chosen and the strip is
 * processed again.
 *
 * Rounding: v + MAGIC has the nearest whole number to v in its last bits. The bit patterns are added,
 * and the bits of MAGIC, times the number of rows, are subtracted at the end: unsigned integers wrap around.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "_platform.h"

enum {
    WIDTH = 16,       /* floats of a strip */
    ROWS = 128,       /* rows of a strip at most: 2**22 * 256 fits into 31 bits */
    RELEASE = 32768,  /* elements from which on the GIL is released */
    VALUE_BITS = 22,  /* grids: see profiles/records/channel_statistics.py */
    VALUE_STEP = 11,
    LOWEST_VALUE = -99,
    SQUARE_BITS = 12, /* half of the bits of a square */
    SQUARE_STEP = 4,
    LOWEST_SQUARE = -100,
    FOLDS = 5,        /* values on two grids, squares on three */
};

#define MAGIC 12582912.0f /* 1.5 * 2**23 */
#define MAGIC_BITS 0x4b400000u

/* Rows of the caller's arrays, n long each. */
typedef struct {
    double *low, *high;      /* range so far; inf and -inf for none */
    double *limit;           /* magnitudes from here on need coarser grids */
    double *scale, *square;  /* 2**(VALUE_BITS - level), 2**(SQUARE_BITS - level of squares) */
    int64_t *count, *sum[FOLDS];
} channels;

/* Range and sums of each lane of a strip; the sums are right only where the range fits the grids. */
typedef struct {
    float low[WIDTH], high[WIDTH];
    int32_t sum[FOLDS][WIDTH];
} strip_sums;

/* Scans rows of a strip and rounds them to grids. Returns 0, and undefined sums, where an element is not finite. */
typedef int (*scan_strip)(const float *x, int rows, Py_ssize_t stride, const float *scale, const float *square,
                          strip_sums *f);

/* --- one strip ------------------------------------------------------------------------------------------ */

static int scan_plain(const float *x, int rows, Py_ssize_t stride, const float *scale, const float *square,
                      strip_sums *f) {
    uint32_t total[FOLDS][WIDTH];
    float low[WIDTH], high[WIDTH], poison[WIDTH];
    memset(total, 0, sizeof total);
    for (int j = 0; j < WIDTH; j++) {
        low[j] = FLT_MAX;
        high[j] = -FLT_MAX;
        poison[j] = 0.0f;
    }
    for (int r = 0; r < rows; r++, x += stride) {
        float rounded[FOLDS][WIDTH];
        uint32_t bits[FOLDS][WIDTH];
        for (int j = 0; j < WIDTH; j++) {
            const float v = x[j], fine = v * scale[j], root = v * square[j], z = root * root;
            low[j] = v < low[j] ? v : low[j];
            high[j] = v > high[j] ? v : high[j];
            poison[j] += v * 0.0f; /* NaN once an element is not finite */
            rounded[0][j] = fine + MAGIC;
            rounded[1][j] = fine * 0x1p-11f + MAGIC;
            rounded[2][j] = z + MAGIC;
            rounded[3][j] = z * 0x1p-8f + MAGIC;
            rounded[4][j] = z * 0x1p-16f + MAGIC;
        }
        memcpy(bits, rounded, sizeof bits);
        for (int k = 0; k < FOLDS; k++)
            for (int j = 0; j < WIDTH; j++) total[k][j] += bits[k][j];
    }
    for (int k = 0; k < FOLDS; k++)
        for (int j = 0; j < WIDTH; j++) f->sum[k][j] = (int32_t)(total[k][j] - (uint32_t)rows * MAGIC_BITS);
    int finite = 1;
    for (int j = 0; j < WIDTH; j++) {
        f->low[j] = low[j];
        f->high[j] = high[j];
        finite &= poison[j] == 0.0f;
    }
    return finite;
}

#if X86
AVX2 static int scan_avx2(const float *x, int rows, Py_ssize_t stride, const float *scale, const float *square,
                          strip_sums *f) {
    const __m256 magic = _mm256_set1_ps(MAGIC), none = _mm256_setzero_ps();
    const __m256i off = _mm256_set1_epi32((int)((uint32_t)rows * MAGIC_BITS));
    int finite = 1;
    for (int i = 0; i < WIDTH; i += 8) {
        const __m256 s = _mm256_loadu_ps(scale + i), t = _mm256_loadu_ps(square + i);
        const __m256 coarse = _mm256_mul_ps(s, _mm256_set1_ps(0x1p-11f));
        __m256 low = _mm256_set1_ps(FLT_MAX), high = _mm256_set1_ps(-FLT_MAX), poison = none;
        __m256i total[FOLDS];
        for (int k = 0; k < FOLDS; k++) total[k] = _mm256_setzero_si256();
#define ADD(k, v) total[k] = _mm256_add_epi32(total[k], _mm256_castps_si256(_mm256_add_ps(v, magic)))
        const float *at = x + i;
        for (int r = 0; r < rows; r++, at += stride) {
            const __m256 v = _mm256_loadu_ps(at), root = _mm256_mul_ps(v, t), z = _mm256_mul_ps(root, root);
            low = _mm256_min_ps(v, low);
            high = _mm256_max_ps(v, high);
            poison = _mm256_add_ps(poison, _mm256_mul_ps(v, none)); /* NaN once an element is not finite */
            ADD(0, _mm256_mul_ps(v, s));
            ADD(1, _mm256_mul_ps(v, coarse));
            ADD(2, z);
            ADD(3, _mm256_mul_ps(z, _mm256_set1_ps(0x1p-8f)));
            ADD(4, _mm256_mul_ps(z, _mm256_set1_ps(0x1p-16f)));
        }
#undef ADD
        for (int k = 0; k < FOLDS; k++)
            _mm256_storeu_si256((void *)(f->sum[k] + i), _mm256_sub_epi32(total[k], off));
        _mm256_storeu_ps(f->low + i, low);
        _mm256_storeu_ps(f->high + i, high);
        finite &= _mm256_movemask_ps(_mm256_cmp_ps(poison, poison, _CMP_UNORD_Q)) == 0;
    }
    return finite;
}

AVX512 static int scan_avx512(const float *x, int rows, Py_ssize_t stride, const float *scale, const float *square,
                              strip_sums *f) {
    const __m512 magic = _mm512_set1_ps(MAGIC), none = _mm512_setzero_ps();
    const __m512 s = _mm512_loadu_ps(scale), t = _mm512_loadu_ps(square);
    const __m512 coarse = _mm512_mul_ps(s, _mm512_set1_ps(0x1p-11f));
    const __m512 down8 = _mm512_set1_ps(0x1p-8f), down16 = _mm512_set1_ps(0x1p-16f);
    const __m512i off = _mm512_set1_epi32((int)((uint32_t)rows * MAGIC_BITS));
    __m512 low = _mm512_set1_ps(FLT_MAX), high = _mm512_set1_ps(-FLT_MAX), poison = none;
    __m512i total[FOLDS];
    for (int k = 0; k < FOLDS; k++) total[k] = _mm512_setzero_si512();
#define ADD(k, rounded) total[k] = _mm512_add_epi32(total[k], _mm512_castps_si512(rounded))
    for (int r = 0; r < rows; r++, x += stride) {
        _mm_prefetch((const char *)(x + 2 * WIDTH), _MM_HINT_T0); /* of the strip after the next: rows are far apart */
        const __m512 v = _mm512_loadu_ps(x), root = _mm512_mul_ps(v, t), z = _mm512_mul_ps(root, root);
        low = _mm512_min_ps(v, low);
        high = _mm512_max_ps(v, high);
        poison = _mm512_fmadd_ps(v, none, poison); /* NaN once an element is not finite */
        /* A product with a power of two is exact, so a fused multiply-add rounds like two operations. */
        ADD(0, _mm512_fmadd_ps(v, s, magic));
        ADD(1, _mm512_fmadd_ps(v, coarse, magic));
        ADD(2, _mm512_add_ps(z, magic));
        ADD(3, _mm512_fmadd_ps(z, down8, magic));
        ADD(4, _mm512_fmadd_ps(z, down16, magic));
    }
#undef ADD
    for (int k = 0; k < FOLDS; k++) _mm512_storeu_si512(f->sum[k], _mm512_sub_epi32(total[k], off));
    _mm512_storeu_ps(f->low, low);
    _mm512_storeu_ps(f->high, high);
    return _mm512_cmp_ps_mask(poison, poison, _CMP_UNORD_Q) == 0;
}
#elif ARM
static int scan_neon(const float *x, int rows, Py_ssize_t stride, const float *scale, const float *square,
                     strip_sums *f) {
    const float32x4_t magic = vdupq_n_f32(MAGIC), none = vdupq_n_f32(0.0f);
    const uint32x4_t off = vdupq_n_u32((uint32_t)rows * MAGIC_BITS);
    float32x4_t poisons = none;
    for (int i = 0; i < WIDTH; i += 4) {
        const float32x4_t s = vld1q_f32(scale + i), t = vld1q_f32(square + i);
        const float32x4_t coarse = vmulq_n_f32(s, 0x1p-11f);
        float32x4_t low = vdupq_n_f32(FLT_MAX), high = vdupq_n_f32(-FLT_MAX), poison = none;
        uint32x4_t total[FOLDS];
        for (int k = 0; k < FOLDS; k++) total[k] = vdupq_n_u32(0);
#define ADD(k, rounded) total[k] = vaddq_u32(total[k], vreinterpretq_u32_f32(rounded))
        const float *at = x + i;
        for (int r = 0; r < rows; r++, at += stride) {
            const float32x4_t v = vld1q_f32(at), root = vmulq_f32(v, t), z = vmulq_f32(root, root);
            low = vminq_f32(low, v);
            high = vmaxq_f32(high, v);
            poison = vfmaq_f32(poison, v, none); /* NaN once an element is not finite */
            /* A product with a power of two is exact, so a fused multiply-add rounds like two operations. */
            ADD(0, vfmaq_f32(magic, v, s));
            ADD(1, vfmaq_f32(magic, v, coarse));
            ADD(2, vaddq_f32(z, magic));
            ADD(3, vfmaq_n_f32(magic, z, 0x1p-8f));
            ADD(4, vfmaq_n_f32(magic, z, 0x1p-16f));
        }
#undef ADD
        for (int k = 0; k < FOLDS; k++)
            vst1q_s32(f->sum[k] + i, vreinterpretq_s32_u32(vsubq_u32(total[k], off)));
        vst1q_f32(f->low + i, low);
        vst1q_f32(f->high + i, high);
        poisons = vaddq_f32(poisons, poison);
    }
    return vaddvq_f32(poisons) == 0.0f;
}
#endif

typedef struct {
    const char *name;
    scan_strip scan;
} kernels;

static const kernels plain = {"plain", scan_plain};
#if X86
static const kernels avx2 = {"avx2", scan_avx2};
static const kernels avx512 = {"avx512", scan_avx512};
#elif ARM
static const kernels neon = {"neon", scan_neon};
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

/* --- the grids of a channel ----------------------------------------------------------------------------- */

/* Return the smallest multiple of `step`, at least `lowest`, with magnitude < 2**(level - 1). */
static int level_of(double magnitude, int step, int lowest) {
    int e;
    if (magnitude == 0.0) return lowest;
    frexp(magnitude, &e); /* magnitude < 2**e */
    e += 1;
    const int level = e > 0 ? (e + step - 1) / step * step : -(-e / step) * step;
    return level > lowest ? level : lowest;
}

/* Make the grids of channel c coarse enough for a magnitude; sums on finer grids are dropped. */
static void grow(channels *s, Py_ssize_t c, double magnitude) {
    int values, squares;
    frexp(s->scale[c], &values);
    frexp(s->square[c], &squares);
    values = VALUE_BITS - (values - 1);
    squares = SQUARE_BITS - (squares - 1);
    const int new_values = level_of(magnitude, VALUE_STEP, LOWEST_VALUE);
    const int new_squares = level_of(magnitude, SQUARE_STEP, LOWEST_SQUARE);
    for (; values < new_values; values += VALUE_STEP) {
        s->sum[0][c] = s->sum[1][c];
        s->sum[1][c] = 0;
    }
    for (; squares < new_squares; squares += SQUARE_STEP) {
        s->sum[2][c] = s->sum[3][c];
        s->sum[3][c] = s->sum[4][c];
        s->sum[4][c] = 0;
    }
    s->scale[c] = ldexp(1.0, VALUE_BITS - values);
    s->square[c] = ldexp(1.0, SQUARE_BITS - squares);
    s->limit[c] = ldexp(1.0, (values < squares ? values : squares) - 1);
}

INLINE void widen(channels *s, Py_ssize_t c, double low, double high) {
    s->low[c] = low < s->low[c] ? low : s->low[c];
    s->high[c] = high > s->high[c] ? high : s->high[c];
    const double magnitude = -low > high ? -low : high;
    if (magnitude >= s->limit[c]) grow(s, c, magnitude);
}

/* --- element by element: doubles, and where something is not finite --------------------------------------- */

#define SINGLY(NAME, REAL, ROUND)                                                                              \
    static void NAME(channels *s, Py_ssize_t c, const REAL *x, Py_ssize_t n, Py_ssize_t stride) {              \
        double low = INFINITY, high = -INFINITY;                                                               \
        for (Py_ssize_t i = 0; i < n; i++) {                                                                   \
            const REAL v = x[i * stride];                                                                      \
            if (v - v != 0) continue;                                                                          \
            low = v < low ? v : low;                                                                           \
            high = v > high ? v : high;                                                                        \
        }                                                                                                      \
        if (low > high) return;                                                                                \
        widen(s, c, low, high);                                                                                \
        const REAL scale = (REAL)s->scale[c], square = (REAL)s->square[c];                                     \
        const REAL coarse = scale / (1 << VALUE_STEP);                                                         \
        for (Py_ssize_t i = 0; i < n; i++) {                                                                   \
            const REAL v = x[i * stride], root = v * square, z = root * root;                                  \
            if (!(v >= low && v <= high)) continue; /* not finite, or written by another thread since */       \
            s->count[c]++;                                                                                     \
            s->sum[0][c] += (int64_t)ROUND(v * scale);                                                         \
            s->sum[1][c] += (int64_t)ROUND(v * coarse);                                                        \
            s->sum[2][c] += (int64_t)ROUND(z);                                                                 \
            s->sum[3][c] += (int64_t)ROUND(z / 256);                                                           \
            s->sum[4][c] += (int64_t)ROUND(z / 65536);                                                         \
        }                                                                                                      \
    }

SINGLY(floats_singly, float, rintf)
SINGLY(doubles_singly, double, rint)

/* --- floats --------------------------------------------------------------------------------------------- */

/* Reduce the lanes of a strip to one, in pairs, whose steps do not depend on each other. */
INLINE void fold_lanes(strip_sums *f, int64_t *sum) {
    for (int k = 0; k < FOLDS; k++) {
        int64_t wide[WIDTH];
        for (int j = 0; j < WIDTH; j++) wide[j] = f->sum[k][j];
        for (int half = WIDTH / 2; half; half /= 2)
            for (int j = 0; j < half; j++) wide[j] += wide[j + half];
        sum[k] = wide[0];
    }
    for (int half = WIDTH / 2; half; half /= 2) {
        for (int j = 0; j < half; j++) {
            f->low[j] = f->low[j + half] < f->low[j] ? f->low[j + half] : f->low[j];
            f->high[j] = f->high[j + half] > f->high[j] ? f->high[j + half] : f->high[j];
        }
    }
}

/* Add rows of up to WIDTH neighbouring channels from c on; narrower strips are padded with zeros. */
static void add_strip(const kernels *k, channels *s, Py_ssize_t c, int width, const float *x, int rows,
                      Py_ssize_t stride) {
    float scale[WIDTH] = {0}, square[WIDTH] = {0};
    strip_sums f;
    for (int large = 1; large;) {
        for (int j = 0; j < width; j++) {
            scale[j] = (float)s->scale[c + j];
            square[j] = (float)s->square[c + j];
        }
        if (!k->scan(x, rows, stride, scale, square, &f)) {
            for (int j = 0; j < width; j++) floats_singly(s, c + j, x + j, rows, stride);
            return;
        }
        large = 0;
        for (int j = 0; j < width; j++) {
            const double l = f.low[j], h = f.high[j];
            s->low[c + j] = l < s->low[c + j] ? l : s->low[c + j];
            s->high[c + j] = h > s->high[c + j] ? h : s->high[c + j];
            large |= (-l >= s->limit[c + j]) | (h >= s->limit[c + j]);
        }
        for (int j = 0; large && j < width; j++) widen(s, c + j, f.low[j], f.high[j]); /* rare; then once more */
    }
    for (int j = 0; j < width; j++) s->count[c + j] += rows;
    for (int i = 0; i < FOLDS; i++)
        for (int j = 0; j < width; j++) s->sum[i][c + j] += f.sum[i][j];
}

/* Add a run of floats of one channel; an incomplete last row is padded with its first element. */
static void add_run(const kernels *k, channels *s, Py_ssize_t c, const float *x, Py_ssize_t n) {
    while (n > 0) {
        const int m = n < ROWS * WIDTH ? (int)n : ROWS * WIDTH, rows = m / WIDTH, left = m % WIDTH;
        float scale[WIDTH], square[WIDTH], tail[WIDTH];
        int64_t sum[FOLDS];
        strip_sums f, rest;
        for (int j = 0; left && j < WIDTH; j++) tail[j] = x[rows * WIDTH + (j < left ? j : 0)];
        int finite = 1;
        for (int large = 1; large && finite;) {
            for (int j = 0; j < WIDTH; j++) {
                scale[j] = (float)s->scale[c];
                square[j] = (float)s->square[c];
            }
            if (left) finite = k->scan(tail, 1, WIDTH, scale, square, &rest);
            if (rows) finite &= k->scan(x, rows, WIDTH, scale, square, &f);
            if (left && rows) {
                for (int j = 0; j < WIDTH; j++) {
                    f.low[j] = rest.low[j] < f.low[j] ? rest.low[j] : f.low[j];
                    f.high[j] = rest.high[j] > f.high[j] ? rest.high[j] : f.high[j];
                    for (int i = 0; i < FOLDS; i++) f.sum[i][j] += j < left ? rest.sum[i][j] : 0;
                }
            } else if (left) {
                f = rest;
                for (int j = left; j < WIDTH; j++)
                    for (int i = 0; i < FOLDS; i++) f.sum[i][j] = 0;
            }
            if (!finite) break;
            fold_lanes(&f, sum);
            large = -(double)f.low[0] >= s->limit[c] || f.high[0] >= s->limit[c];
            widen(s, c, f.low[0], f.high[0]);
        }
        if (finite) {
            s->count[c] += m;
            for (int i = 0; i < FOLDS; i++) s->sum[i][c] += sum[i];
        } else {
            floats_singly(s, c, x, m, 1);
        }
        x += m;
        n -= m;
    }
}

/* --- short floats --------------------------------------------------------------------------------------- */

static float widened(uint16_t x, int is_half) {
    uint32_t bits = (uint32_t)x << 16; /* bfloat16 */
    float value;
    if (is_half) {
        const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = x & 0x7fffu;
        if (rest < 0x0400u) { /* a multiple of 2**-24 */
            value = 5.9604644775390625e-8f * (float)rest;
            return sign ? -value : value;
        }
        bits = (rest >= 0x7c00u ? rest << 13 | 0x7f800000u : (rest << 13) + (112u << 23)) | sign;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void widen_row(const void *x, char type, Py_ssize_t at, int n, float *out) {
    for (int i = 0; i < n; i++) out[i] = widened(((const uint16_t *)x)[at + i], type == 'e');
}

/* --- all units ------------------------------------------------------------------------------------------ */

typedef struct {
    Py_ssize_t groups, inner, lanes, start, stop;
} layout;

static void add_plane(const kernels *k, channels *s, Py_ssize_t c, const void *x, char type, Py_ssize_t at,
                      Py_ssize_t n) {
    float buffer[ROWS * WIDTH];
    if (type == 'f') {
        add_run(k, s, c, (const float *)x + at, n);
    } else if (type == 'd') {
        doubles_singly(s, c, (const double *)x + at, n, 1);
    } else {
        for (int m; n > 0; at += m, n -= m) {
            m = n < ROWS * WIDTH ? (int)n : ROWS * WIDTH;
            widen_row(x, type, at, m, buffer);
            add_run(k, s, c, buffer, m);
        }
    }
}

/* Add up to WIDTH neighbouring short planes at the same time. */
static void add_planes(const kernels *k, channels *s, Py_ssize_t c, int width, const void *x, char type,
                       Py_ssize_t at, int n) {
    float buffer[ROWS * WIDTH];
    if (width < WIDTH) memset(buffer, 0, (size_t)n * WIDTH * sizeof(float));
    for (int j = 0; j < width; j++) {
        for (int r = 0; r < n; r++) {
            const Py_ssize_t i = at + (Py_ssize_t)j * n + r;
            buffer[r * WIDTH + j] =
                type == 'f' ? ((const float *)x)[i] : widened(((const uint16_t *)x)[i], type == 'e');
        }
    }
    add_strip(k, s, c, width, buffer, n, WIDTH);
}

static void add_vectors(const kernels *k, channels *s, Py_ssize_t first, const void *x, char type, Py_ssize_t at,
                        Py_ssize_t inner, Py_ssize_t lanes) {
    float buffer[ROWS * WIDTH];
    for (int rows; inner > 0; at += rows * lanes, inner -= rows) {
        rows = inner < ROWS ? (int)inner : ROWS;
        for (Py_ssize_t c = 0; c < lanes; c += WIDTH) {
            const int width = lanes - c < WIDTH ? (int)(lanes - c) : WIDTH;
            if (type == 'd') {
                for (int j = 0; j < width; j++)
                    doubles_singly(s, first + c + j, (const double *)x + at + c + j, rows, lanes);
                continue;
            }
            const float *strip = (const float *)x + at + c;
            Py_ssize_t stride = lanes;
            if (type != 'f' || width < WIDTH) {
                memset(buffer, 0, (size_t)rows * WIDTH * sizeof(float));
                for (int r = 0; r < rows; r++) {
                    if (type == 'f') memcpy(buffer + r * WIDTH, strip + r * lanes, (size_t)width * sizeof(float));
                    else widen_row(x, type, at + r * lanes + c, width, buffer + r * WIDTH);
                }
                strip = buffer;
                stride = WIDTH;
            }
            add_strip(k, s, first + c, width, strip, rows, stride);
        }
    }
}

static void add_units(const kernels *k, channels *s, const layout *g, const void *x, char type) {
    const Py_ssize_t size = g->inner * g->lanes;
    if (g->groups == 1 && g->lanes > 1) {
        add_vectors(k, s, 0, x, type, g->start * size, (g->stop - g->start) * g->inner, g->lanes);
        return;
    }
    const int are_short = g->lanes == 1 && size <= ROWS && type != 'd';
    for (Py_ssize_t u = g->start, next; u < g->stop; u = next) {
        const Py_ssize_t first = u % g->groups * g->lanes;
        next = u + 1;
        if (are_short) {
            Py_ssize_t width = g->groups - first < g->stop - u ? g->groups - first : g->stop - u;
            if (width > WIDTH) width = WIDTH;
            add_planes(k, s, first, (int)width, x, type, u * size, (int)size);
            next = u + width;
        } else if (g->lanes == 1) {
            add_plane(k, s, first, x, type, u * size, size);
        } else {
            add_vectors(k, s, first, x, type, u * size, g->inner, g->lanes);
        }
    }
}

/* --- Python --------------------------------------------------------------------------------------------- */

/* Consecutive units of an array and the channels that they are added to. */
typedef struct {
    Py_buffer x, ranges, sums;
    char type; /* f, d, e; b for bfloat16 */
    layout layout;
    channels channels;
} job;

static void release(job *jobs, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        PyBuffer_Release(&jobs[i].x);
        PyBuffer_Release(&jobs[i].ranges);
        PyBuffer_Release(&jobs[i].sums);
    }
    PyMem_Free(jobs);
}

/* Return the type of an array's elements, 0 where it is none of f, d, e and H in native byte order, aligned. */
static char format_of(const Py_buffer *x) {
    const char format = x->format != NULL && x->format[0] != 0 && x->format[1] == 0 ? x->format[0] : 0;
    const Py_ssize_t size = format == 'd' ? 8 : format == 'f' ? 4 : format == 'e' || format == 'H' ? 2 : 0;
    return x->itemsize == size ? format : 0;
}

/* Return the error of a job, NULL for none, and fill in its computed fields. */
static const char *complete(job *j) {
    const char format = format_of(&j->x);
    const layout *g = &j->layout;
    const Py_ssize_t limit = PY_SSIZE_T_MAX / 64;
    if (format == 0) return "arrays must be of f, d, e or H";
    if (g->groups < 1 || g->inner < 1 || g->lanes < 1 || g->groups > limit / g->lanes || g->inner > limit / g->lanes)
        return "groups, inner and lanes must be at least 1";
    if (g->start < 0 || g->stop < g->start || g->stop > j->x.len / j->x.itemsize / (g->inner * g->lanes))
        return "units must lie in the array";
    const Py_ssize_t n = g->groups * g->lanes;
    if (j->ranges.len != n * 5 * 8 || j->sums.len != n * 6 * 8)
        return "there must be 5 doubles and 6 integers for each channel";
    j->type = format == 'H' ? 'b' : format;
    double *real = j->ranges.buf;
    int64_t *whole = j->sums.buf;
    j->channels = (channels){real, real + n, real + 2 * n, real + 3 * n, real + 4 * n, whole, {NULL}};
    for (int f = 0; f < FOLDS; f++) j->channels.sum[f] = whole + (f + 1) * n;
    return NULL;
}

/* Fill in a job; the caller's slice is ((groups, inner, lanes), start, stop, (ranges, sums)). Returns 0 on an error. */
static int parse(PyObject *array, PyObject *part, job *j) {
    layout *g = &j->layout;
    memset(j, 0, sizeof *j);
    if (array == NULL || part == NULL) return 0; /* reading an array ran code that made a list shorter */
    if (!PyTuple_Check(part)) {
        PyErr_SetString(PyExc_TypeError, "parts must be tuples");
        return 0;
    }
    if (!PyArg_ParseTuple(part, "(nnn)nn(w*w*)", &g->groups, &g->inner, &g->lanes, &g->start, &g->stop, &j->ranges,
                          &j->sums))
        return 0;
    if (PyObject_GetBuffer(array, &j->x, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) {
        const char *wrong = complete(j);
        if (wrong == NULL) return 1;
        PyErr_SetString(PyExc_ValueError, wrong);
    }
    PyBuffer_Release(&j->x);
    PyBuffer_Release(&j->ranges);
    PyBuffer_Release(&j->sums);
    return 0;
}

/* Accumulate without Python: the jobs hold the buffers of all memory that is used. */
static void accumulate_jobs(const kernels *k, job *jobs, Py_ssize_t n) {
    const uint64_t state = set_float_state(FLOAT_STATE);
    for (job *j = jobs; j < jobs + n; j++) add_units(k, &j->channels, &j->layout, j->x.buf, j->type);
    set_float_state(state);
}

static PyObject *gather(PyObject *module, PyObject *args) {
    PyObject *arrays, *parts;
    int level;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!i", &PyList_Type, &arrays, &PyList_Type, &parts, &level)) return NULL;
    const kernels *usable[3];
    const Py_ssize_t n = PyList_Size(arrays);
    if (level < 0 || level >= available(usable) || n != PyList_Size(parts)) {
        PyErr_SetString(PyExc_ValueError, n == PyList_Size(parts) ? "no such level" : "each array needs its part");
        return NULL;
    }
    job *jobs = PyMem_Malloc((size_t)(n ? n : 1) * sizeof *jobs);
    if (jobs == NULL) return PyErr_NoMemory();
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        const layout *g = &jobs[i].layout;
        if (!parse(PyList_GetItem(arrays, i), PyList_GetItem(parts, i), &jobs[i])) {
            release(jobs, i);
            return NULL;
        }
        total += (g->stop - g->start) * g->inner * g->lanes;
    }
    /* Taking the GIL back may take longer than adding a few elements. */
    PyThreadState *saved = total >= RELEASE ? PyEval_SaveThread() : NULL;
    accumulate_jobs(usable[level], jobs, n);
    if (saved != NULL) PyEval_RestoreThread(saved);
    release(jobs, n);
    Py_RETURN_NONE;
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
    {"gather", gather, METH_VARARGS, "gather(arrays, parts, level)"},
    {"levels", levels, METH_NOARGS, "levels() -> names of the instruction sets that can be used, best first"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_channels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__channels(void) { return PyModule_Create(&definition); }
