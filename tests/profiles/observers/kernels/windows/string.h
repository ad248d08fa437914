#include <stddef.h>
void *memcpy(void *, const void *, size_t), *memset(void *, int, size_t);
