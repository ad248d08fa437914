/* The compiled kernel of quantizer/numerics/block_scales.py: scales of blocks of a weight, and their packed integers.
 *
 * A weight is [outer, size, inner]; `size` is divided into blocks, the last of which may be smaller. A column is what
 * has one outer and one inner index. Blocks of LANES columns that follow each other are a tile [block, LANES], in which
 * every sum runs over the rows in their order: the bytes of numpy, whatever the instruction set.
 *
 * Rounding: v + MAGIC - MAGIC is the nearest whole number, halves to even, for magnitudes below 2**22; values are
 * clamped to those of the type first.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../profiles/observers/_platform.h"

enum { LANES = 16 };

#define MAGIC 12582912.0f /* 1.5 * 2**23 */

typedef struct {
    const float *x;
    Py_ssize_t outer, size, inner, block, blocks;
} weight;

/* The smallest and the largest quantized value, whether zero points are 0, and the shares of ranges that are tried. */
typedef struct {
    int first, last, symmetric;
    const float *shrinks;
    Py_ssize_t tries;
} rule;

typedef struct {
    float *scale;
    int32_t *point;
    double energy, error;
    int finite;
} found;

/* Where the first elements of the columns of a tile are; those beyond the last column are none (-1). */
INLINE Py_ssize_t columns_at(const weight *w, Py_ssize_t column, Py_ssize_t *base) {
    const Py_ssize_t all = w->outer * w->inner, n = all - column < LANES ? all - column : LANES;
    for (int j = 0; j < LANES; j++) {
        const Py_ssize_t c = column + j;
        base[j] = j < n ? c / w->inner * w->size * w->inner + c % w->inner : -1;
    }
    return n;
}

/* Copy a tile, zeros where there is nothing; return its rows. */
INLINE Py_ssize_t read_tile(const weight *w, Py_ssize_t n, const Py_ssize_t *base, Py_ssize_t b, float *RESTRICT t) {
    const Py_ssize_t begin = b * w->block;
    const Py_ssize_t rows = w->size - begin < w->block ? w->size - begin : w->block;
    if (n == LANES && base[LANES - 1] == base[0] + LANES - 1) {
        for (Py_ssize_t r = 0; r < rows; r++)
            memcpy(t + r * LANES, w->x + base[0] + (begin + r) * w->inner, LANES * sizeof(float));
    } else {
        for (int j = 0; j < LANES; j++)
            for (Py_ssize_t r = 0; r < rows; r++)
                t[r * LANES + j] = j < n ? w->x[base[j] + (begin + r) * w->inner] : 0.0f;
    }
    return rows;
}

/* Scales and zero points of the ranges of a tile: `schemas.choose_arrays`, in loops that compilers make vectors of. */
INLINE void choose(const rule *g, float share, const float *RESTRICT from, const float *RESTRICT to,
                   float *RESTRICT scale, float *RESTRICT point) {
    const double first = g->first, last = g->last, span = last - first, middle = floor((first + last + 1.0) / 2.0);
    double low[LANES], high[LANES], step[LANES];
    for (int j = 0; j < LANES; j++) {
        const float narrow_low = from[j] * share, narrow_high = to[j] * share;
        low[j] = narrow_low;
        high[j] = narrow_high;
    }
    if (g->symmetric)
        for (int j = 0; j < LANES; j++) {
            const double below = low[j] / first, above = high[j] / last;
            const double difference = fabs(below - above), room = (double)FLT_EPSILON * (below + above);
            double wide = below * last, deep = above * first;
            wide = wide > FLT_MAX ? FLT_MAX : wide;
            deep = deep < -FLT_MAX ? -FLT_MAX : deep;
            wide = (double)(float)wide;
            deep = (double)(float)deep;
            const double higher = below > above ? wide : high[j], lower = below > above ? low[j] : deep;
            high[j] = difference <= room ? high[j] : higher;
            low[j] = difference <= room ? low[j] : lower;
        }
    for (int j = 0; j < LANES; j++) {
        step[j] = (high[j] - low[j]) / span;
        step[j] = step[j] == 0.0 ? 0.1 : step[j];
        const float narrow = (float)step[j];
        scale[j] = narrow == 0.0f ? FLT_MIN : narrow;
    }
    if (g->symmetric) {
        for (int j = 0; j < LANES; j++) point[j] = 0.0f;
        return;
    }
    for (int j = 0; j < LANES; j++) {
        const double below = low[j] / step[j], above = high[j] / step[j];
        const double from_below = first - below, from_above = last - above;
        const double near_below = fabs(first) - below, near_above = fabs(last) + above;
        const double exact = near_below < near_above ? from_below : from_above;
        const double whole = trunc(exact), away = whole + copysign(1.0, exact), rest = fabs(exact - whole);
        double zero = rest >= 0.5 ? away : whole;
        zero = zero < first ? first : zero;
        zero = zero > last ? last : zero;
        const double largest = -low[j] > high[j] ? -low[j] : high[j], sum = fabs(low[j] + high[j]);
        const double room = (double)FLT_EPSILON * largest;
        zero = sum <= room ? middle : zero;
        zero = largest == 0.0 ? 0.0 : zero;
        point[j] = (float)zero;
    }
}

/* The summed squared errors of each column of a tile. */
typedef void (*sum_errors)(const float *t, Py_ssize_t rows, const float *scale, const float *down, const float *up,
                           float *error);

static void errors_plain(const float *t, Py_ssize_t rows, const float *scale, const float *down, const float *up,
                         float *error) {
    for (int j = 0; j < LANES; j++) error[j] = 0.0f;
    for (Py_ssize_t r = 0; r < rows; r++)
        for (int j = 0; j < LANES; j++) {
            float q = t[r * LANES + j] / scale[j];
            q = q < down[j] ? down[j] : q;
            q = q > up[j] ? up[j] : q;
            const float e = ((q + MAGIC) - MAGIC) * scale[j] - t[r * LANES + j];
            error[j] += e * e;
        }
}

#if X86
AVX2 static void errors_avx2(const float *t, Py_ssize_t rows, const float *scale, const float *down, const float *up,
                             float *error) {
    const __m256 magic = _mm256_set1_ps(MAGIC);
    for (int i = 0; i < LANES; i += 8) {
        const __m256 s = _mm256_loadu_ps(scale + i), d = _mm256_loadu_ps(down + i), u = _mm256_loadu_ps(up + i);
        __m256 sum = _mm256_setzero_ps();
        for (Py_ssize_t r = 0; r < rows; r++) {
            const __m256 v = _mm256_loadu_ps(t + r * LANES + i);
            const __m256 q = _mm256_min_ps(_mm256_max_ps(_mm256_div_ps(v, s), d), u);
            const __m256 whole = _mm256_sub_ps(_mm256_add_ps(q, magic), magic);
            const __m256 e = _mm256_sub_ps(_mm256_mul_ps(whole, s), v);
            sum = _mm256_add_ps(sum, _mm256_mul_ps(e, e));
        }
        _mm256_storeu_ps(error + i, sum);
    }
}

AVX512 static void errors_avx512(const float *t, Py_ssize_t rows, const float *scale, const float *down,
                                 const float *up, float *error) {
    const __m512 magic = _mm512_set1_ps(MAGIC);
    const __m512 s = _mm512_loadu_ps(scale), d = _mm512_loadu_ps(down), u = _mm512_loadu_ps(up);
    __m512 sum = _mm512_setzero_ps();
    for (Py_ssize_t r = 0; r < rows; r++) {
        const __m512 v = _mm512_loadu_ps(t + r * LANES);
        const __m512 q = _mm512_min_ps(_mm512_max_ps(_mm512_div_ps(v, s), d), u);
        const __m512 whole = _mm512_sub_ps(_mm512_add_ps(q, magic), magic);
        const __m512 e = _mm512_sub_ps(_mm512_mul_ps(whole, s), v);
        sum = _mm512_add_ps(sum, _mm512_mul_ps(e, e));
    }
    _mm512_storeu_ps(error, sum);
}
#endif

/* Find the scales of one tile. */
INLINE void search_tile(const rule *g, sum_errors errors, const float *RESTRICT t, Py_ssize_t rows, float *RESTRICT best,
                        float *RESTRICT zero, float *RESTRICT least, float *RESTRICT energy, int *finite) {
    float low[LANES], high[LANES], poison[LANES];
    for (int j = 0; j < LANES; j++) low[j] = high[j] = poison[j] = energy[j] = 0.0f;
    for (Py_ssize_t r = 0; r < rows; r++)
        for (int j = 0; j < LANES; j++) {
            const float v = t[r * LANES + j];
            low[j] = v < low[j] ? v : low[j];
            high[j] = v > high[j] ? v : high[j];
            poison[j] += v * 0.0f; /* NaN once an element is not finite */
            energy[j] += v * v;
        }
    for (Py_ssize_t s = 0; s < g->tries; s++) {
        float scale[LANES], point[LANES], down[LANES], up[LANES], error[LANES];
        choose(g, g->shrinks[s], low, high, scale, point);
        for (int j = 0; j < LANES; j++) {
            down[j] = (float)g->first - point[j];
            up[j] = (float)g->last - point[j];
        }
        errors(t, rows, scale, down, up, error);
        for (int j = 0; j < LANES; j++) {
            const int better = s == 0 || error[j] < least[j];
            least[j] = better ? error[j] : least[j];
            best[j] = better ? scale[j] : best[j];
            zero[j] = better ? point[j] : zero[j];
        }
    }
    for (int j = 0; j < LANES; j++) *finite &= poison[j] == 0.0f;
}

INLINE void search_all(const weight *w, const rule *g, sum_errors errors, float *tile, found *f) {
    Py_ssize_t base[LANES];
    float best[LANES], zero[LANES], least[LANES], energy[LANES];
    for (Py_ssize_t b = 0; b < w->blocks; b++)
        for (Py_ssize_t c = 0; c < w->outer * w->inner; c += LANES) {
            const Py_ssize_t n = columns_at(w, c, base), rows = read_tile(w, n, base, b, tile);
            search_tile(g, errors, tile, rows, best, zero, least, energy, &f->finite);
            for (Py_ssize_t j = 0; j < n; j++) {
                const Py_ssize_t at = ((c + j) / w->inner * w->blocks + b) * w->inner + (c + j) % w->inner;
                f->scale[at] = best[j];
                f->point[at] = (int32_t)zero[j];
                f->energy += energy[j];
                f->error += least[j];
            }
        }
}

/* Quantize one tile to unsigned integers; `offset` is what signed ones are moved by. */
INLINE void quantize_tile(const rule *g, int offset, const float *RESTRICT t, Py_ssize_t rows,
                          const float *RESTRICT scale, const float *RESTRICT point, uint8_t *RESTRICT out,
                          int *finite) {
    float poison[LANES];
    for (int j = 0; j < LANES; j++) poison[j] = 0.0f;
    for (Py_ssize_t r = 0; r < rows; r++) {
        int32_t whole[LANES];
        for (int j = 0; j < LANES; j++) {
            const float v = t[r * LANES + j], down = (float)g->first - point[j], up = (float)g->last - point[j];
            poison[j] += v * 0.0f;
            float q = v / scale[j];
            q = q < down ? down : q;
            q = q > up ? up : q;
            whole[j] = (int32_t)((q + MAGIC) - MAGIC + point[j]) + offset;
        }
        for (int j = 0; j < LANES; j++) out[r * LANES + j] = (uint8_t)whole[j];
    }
    for (int j = 0; j < LANES; j++) *finite &= poison[j] == 0.0f;
}

INLINE int pack_all(const weight *w, const rule *g, int offset, int bits, const float *scales, const int32_t *points,
                    float *tile, uint8_t *quantized, uint8_t *out, Py_ssize_t pitch) {
    Py_ssize_t base[LANES];
    float scale[LANES], point[LANES];
    int finite = 1;
    for (Py_ssize_t b = 0; b < w->blocks; b++)
        for (Py_ssize_t c = 0; c < w->outer * w->inner; c += LANES) {
            const Py_ssize_t n = columns_at(w, c, base), rows = read_tile(w, n, base, b, tile);
            for (int j = 0; j < LANES; j++) {
                const Py_ssize_t k = j < n ? c + j : c;
                const Py_ssize_t at = (k / w->inner * w->blocks + b) * w->inner + k % w->inner;
                scale[j] = scales[at];
                point[j] = (float)points[at];
            }
            quantize_tile(g, offset, tile, rows, scale, point, quantized, &finite);
            for (Py_ssize_t j = 0; j < n; j++) {
                uint8_t *to = out + (c + j) * pitch + b * w->block * bits / 8;
                if (bits == 8)
                    for (Py_ssize_t r = 0; r < rows; r++) to[r] = quantized[r * LANES + j];
                else
                    for (Py_ssize_t r = 0; r < rows; r += 2)
                        to[r / 2] = (uint8_t)(quantized[r * LANES + j] |
                                              (r + 1 < rows ? quantized[(r + 1) * LANES + j] << 4 : 0));
            }
        }
    return finite;
}

/* --- one copy for each instruction set ------------------------------------------------------------------- */

#define COPIES(TARGET, SUFFIX)                                                                                       \
    TARGET static void search_##SUFFIX(const weight *w, const rule *g, float *tile, found *f) {                      \
        search_all(w, g, errors_##SUFFIX, tile, f);                                                                  \
    }                                                                                                                \
    TARGET static int pack_##SUFFIX(const weight *w, const rule *g, int offset, int bits, const float *scales,       \
                                    const int32_t *points, float *tile, uint8_t *quantized, uint8_t *out,            \
                                    Py_ssize_t pitch) {                                                              \
        return pack_all(w, g, offset, bits, scales, points, tile, quantized, out, pitch);                            \
    }

typedef struct {
    const char *name;
    void (*search)(const weight *, const rule *, float *, found *);
    int (*pack)(const weight *, const rule *, int, int, const float *, const int32_t *, float *, uint8_t *, uint8_t *,
                Py_ssize_t);
} kernels;

COPIES(, plain)
static const kernels PLAIN = {"plain", search_plain, pack_plain};
#if X86
COPIES(AVX2, avx2)
COPIES(AVX512, avx512)
static const kernels OF_AVX2 = {"avx2", search_avx2, pack_avx2}, OF_AVX512 = {"avx512", search_avx512, pack_avx512};
#endif

/* Fill in the kernels that can be used, best first; return how many. */
static int available(const kernels **usable) {
    int n = 0;
#if X86
    const int level = x86_level();
    if (level > 1) usable[n++] = &OF_AVX512;
    if (level > 0) usable[n++] = &OF_AVX2;
#endif
    usable[n++] = &PLAIN;
    return n;
}

/* --- Python ---------------------------------------------------------------------------------------------- */

/* Complete a weight; return the kernels of a level, NULL and an exception where arguments do not fit. */
static const kernels *checked(weight *w, const Py_buffer *x, const rule *g, int level) {
    const kernels *usable[3];
    if (level < 0 || level >= available(usable)) {
        PyErr_SetString(PyExc_ValueError, "no such level");
        return NULL;
    }
    if (w->outer < 0 || w->inner < 1 || w->size < 0 || w->block < 1 || g->first >= g->last ||
        x->len != w->outer * w->size * w->inner * (Py_ssize_t)sizeof(float)) {
        PyErr_SetString(PyExc_ValueError, "the weight is not of this shape");
        return NULL;
    }
    w->x = x->buf;
    w->blocks = (w->size + w->block - 1) / w->block;
    return usable[level];
}

static PyObject *search(PyObject *module, PyObject *args) {
    Py_buffer x, shrinks, scale, point;
    weight w;
    rule g;
    int level;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*(nnn)niiiy*w*w*i", &x, &w.outer, &w.size, &w.inner, &w.block, &g.first, &g.last,
                          &g.symmetric, &shrinks, &scale, &point, &level))
        return NULL;
    const kernels *k = checked(&w, &x, &g, level);
    if (k != NULL) {
        const Py_ssize_t count = w.outer * w.blocks * w.inner;
        found f = {scale.buf, point.buf, 0.0, 0.0, 1};
        g.shrinks = shrinks.buf;
        g.tries = shrinks.len / (Py_ssize_t)sizeof(float);
        float *tile = malloc((size_t)w.block * LANES * sizeof(float));
        if (tile == NULL) {
            PyErr_NoMemory();
        } else if (scale.len != count * (Py_ssize_t)sizeof(float) || point.len != count * (Py_ssize_t)sizeof(int32_t) ||
                   g.tries < 1) {
            PyErr_SetString(PyExc_ValueError, "each block needs room for a float and an int32");
        } else {
            Py_BEGIN_ALLOW_THREADS;
            const uint64_t state = set_float_state(FLOAT_STATE);
            k->search(&w, &g, tile, &f);
            set_float_state(state);
            Py_END_ALLOW_THREADS;
            result = Py_BuildValue("ddO", f.energy, f.error, f.finite ? Py_True : Py_False);
        }
        free(tile);
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&shrinks);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&point);
    return result;
}

static PyObject *pack(PyObject *module, PyObject *args) {
    Py_buffer x, scale, point, out;
    weight w;
    rule g = {0};
    int level, bits, offset;
    Py_ssize_t pitch;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*(nnn)niiiiy*y*w*ni", &x, &w.outer, &w.size, &w.inner, &w.block, &g.first, &g.last,
                          &offset, &bits, &scale, &point, &out, &pitch, &level))
        return NULL;
    const kernels *k = checked(&w, &x, &g, level);
    if (k != NULL) {
        const Py_ssize_t count = w.outer * w.blocks * w.inner, columns = w.outer * w.inner;
        float *tile = malloc((size_t)w.block * LANES * sizeof(float));
        uint8_t *quantized = malloc((size_t)w.block * LANES);
        if (tile == NULL || quantized == NULL) {
            PyErr_NoMemory();
        } else if (scale.len != count * (Py_ssize_t)sizeof(float) || point.len != count * (Py_ssize_t)sizeof(int32_t) ||
                   (bits != 4 && bits != 8) || (bits == 4 && w.block % 2) || pitch < (w.size * bits + 7) / 8 ||
                   out.len != columns * pitch) {
            PyErr_SetString(PyExc_ValueError, "the arrays do not fit the weight");
        } else {
            int finite;
            Py_BEGIN_ALLOW_THREADS;
            const uint64_t state = set_float_state(FLOAT_STATE);
            finite = k->pack(&w, &g, offset, bits, scale.buf, point.buf, tile, quantized, out.buf, pitch);
            set_float_state(state);
            Py_END_ALLOW_THREADS;
            result = PyBool_FromLong(finite);
        }
        free(tile);
        free(quantized);
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&point);
    PyBuffer_Release(&out);
    return result;
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
    {"search", search, METH_VARARGS,
     "search(weight, (outer, size, inner), block, first, last, symmetric, shrinks, scale, point, level)"
     " -> (energy, error, whether all is finite)"},
    {"pack", pack, METH_VARARGS,
     "pack(weight, (outer, size, inner), block, first, last, offset, bits, scale, point, out, pitch, level)"
     " -> whether all is finite"},
    {"levels", levels, METH_NOARGS, "levels() -> names of the instruction sets that can be used, best first"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_blocks", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__blocks(void) { return PyModule_Create(&definition); }
