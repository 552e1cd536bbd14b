/* profile.c: reading a point off a profile. */
#include "profile.h"

double weft__profile_block_ns(const weft__kind_cost *k, uint32_t rows)
{
    if (!k->n_point) return 0;
    uint32_t i = 0;
    while (i < k->n_point && k->rows[i] < rows)
        i++;
    if (i == 0 || (i < k->n_point && k->rows[i] == rows)) return k->block_ns[i];
    if (i == k->n_point) i--; /* beyond: on from the last two */
    if (i == 0) return k->block_ns[0] * rows / k->rows[0];
    const double x0 = k->rows[i - 1], x1 = k->rows[i], y0 = k->block_ns[i - 1], y1 = k->block_ns[i];
    const double y = y0 + (y1 - y0) * (rows - x0) / (x1 - x0);
    return y > 0 ? y : 0;
}
