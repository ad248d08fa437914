/* Adds the arrays of standard input to empty channels with each kernel, and writes the sums: see test_platforms.py.
 *
 * An array: type, n, groups, inner, lanes, start, stop, the ranges (5 doubles for each channel), elements. Written for
 * each kernel: ranges and sums (6 integers for each channel). All numbers are int64 or double. */
#include "_channels.c"

#include <stdio.h>
#include <stdlib.h>

int main(void) {
    int64_t head[7];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        const char type = (char)head[0];
        const size_t size = type == 'd' ? 8 : type == 'f' ? 4 : 2, n = (size_t)head[1];
        const size_t width = (size_t)(head[2] * head[4]);
        double *empty = malloc(5 * width * sizeof *empty), *ranges = malloc(5 * width * sizeof *ranges);
        int64_t *sums = malloc(6 * width * sizeof *sums);
        void *x = malloc(n * size + 1);
        if (fread(empty, sizeof *empty, 5 * width, stdin) != 5 * width || fread(x, size, n, stdin) != n) return 1;
        const kernels *usable[3];
        const int levels = available(usable);
        for (int level = 0; level < levels; level++) {
            job j = {.layout = {head[2], head[3], head[4], head[5], head[6]}};
            char format[2] = {type == 'b' ? 'H' : type, 0};
            j.x = (Py_buffer){.buf = x, .len = (Py_ssize_t)(n * size), .itemsize = (Py_ssize_t)size, .format = format};
            j.ranges = (Py_buffer){.buf = ranges, .len = (Py_ssize_t)(5 * width * sizeof *ranges)};
            j.sums = (Py_buffer){.buf = sums, .len = (Py_ssize_t)(6 * width * sizeof *sums)};
            memcpy(ranges, empty, 5 * width * sizeof *ranges);
            memset(sums, 0, 6 * width * sizeof *sums);
            if (complete(&j) != NULL) return 2;
            accumulate_jobs(usable[level], &j, 1);
            fwrite(ranges, sizeof *ranges, 5 * width, stdout);
            fwrite(sums, sizeof *sums, 6 * width, stdout);
        }
        free(x);
        free(empty);
        free(ranges);
        free(sums);
    }
    return 0;
}
