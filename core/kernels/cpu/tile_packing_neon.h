// Tiles of operands by the vectors of ARM64.
#pragma once

#include "core/kernels/cpu/tile_operand.h"

namespace tapestry::kernels {

/// Fills a tile, both of them of a split operand, whose elements all exist; `source` begins with
/// its first one. The bits are those of pack_tiles_plainly().
void pack_whole_tile(const Factor& source, TileOperand::Side side, TileForm form, BFloat16* tile);

}  // namespace tapestry::kernels
