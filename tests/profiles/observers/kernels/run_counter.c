/* Counts the arrays of standard input with each kernel, and writes what they counted: see test_platforms.py.
 *
 * An array: type, n, exponent, first, number of bins, minimum, maximum, elements. Written for each kernel: stop, nan,
 * inf, zeros, the ranges of what was not counted and of what was, counts. All numbers are int64 or double. */
#include "_counter.c"

#include <stdio.h>
#include <stdlib.h>

int main(void) {
    int64_t head[5]; /* type, n, exponent, first, bins */
    double range[2];
    while (fread(head, sizeof head, 1, stdin) == 1 && fread(range, sizeof range, 1, stdin) == 1) {
        const char type = (char)head[0];
        const size_t size = type == 'd' ? 8 : type == 'f' ? 4 : 2, n = (size_t)head[1];
        void *x = malloc(n * size + 1);
        if (fread(x, size, n, stdin) != n) return 1;
        const kernels *usable[3];
        const int levels = available(usable);
        for (int level = 0; level < levels; level++) {
            int64_t *counts = calloc((size_t)head[4] + 1, sizeof *counts);
            grid g = {range[0], range[1], ldexp(1.0, (int)-head[2]), head[3], (Py_ssize_t)head[4], counts};
            result r = {.low = INFINITY, .high = -INFINITY, .lowest = INFINITY, .highest = -INFINITY};
            advance_array(usable[level], type, x, head[1], &g, &r);
            const int64_t whole[4] = {r.stop, r.nan, r.inf, r.zeros};
            const double limits[4] = {r.low, r.high, r.lowest, r.highest};
            fwrite(whole, sizeof whole, 1, stdout);
            fwrite(limits, sizeof limits, 1, stdout);
            fwrite(counts, sizeof *counts, (size_t)head[4], stdout);
            free(counts);
        }
        free(x);
    }
    return 0;
}
