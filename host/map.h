/* map.h: memory from the system. A whole file, read-only, through mmap (it must not be cut short while it is mapped: SIGBUS);
 * large tables. */
#ifndef WEFT_HOST_MAP_H
#define WEFT_HOST_MAP_H

#include <stdint.h>

typedef struct weft__map {
    const uint8_t *bytes; /* NULL for an empty file */
    uint64_t size;
} weft__map;

int weft__map_open(const char *path, weft__map *out); /* WEFT_EFILE: no such file, not a regular file; WEFT_EIO */
void weft__map_close(weft__map *map);                 /* legal on a zeroed map */

/* Tables of n elements, uninitialised or zero, for free(). Large ones ask for huge pages: a plan of a million tasks touches some
 * 300 MB once, and a fault a page would cost as much as half of the planning. NULL: no memory.                          */
void *weft__table(uint64_t n, uint64_t element);
void *weft__table_zero(uint64_t n, uint64_t element);

#endif
