// Batches of images with augmentation.
#pragma once

#include <vector>

#include "data/batches/batching.h"
#include "data/images/images.h"

namespace tapestry {

/// Random changes of training images.
struct AugmentOptions {
  int64_t shift = 0;  ///< moves an image by up to this many pixels in each direction
  bool flip = false;  ///< mirrors half of the images, left to right
};

struct ImageBatchOptions {
  int64_t batch_size = 256;  ///< images
  bool shuffle = true;       ///< false: in the order of the corpus, without augmentation
  uint64_t seed = 1;
  AugmentOptions augment = {};
};

/// A batch of images, on the CPU.
struct ImageBatch {
  Tensor pixels;                 ///< (B, height, width, channels) float32, normalised
  Tensor labels;                 ///< (B) int32
  int64_t rows = 0;              ///< B
  std::vector<int64_t> indices;  ///< the number in the corpus of each row's image
};

ImageBatch rows_of(const ImageBatch& batch, int64_t begin, int64_t end);

/// Epoch after epoch, every image once. The change of an image is a function of (seed, epoch, its
/// number).
class ImageBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk does, Error(kConfig) for a batch_size below 1.
  ImageBatches(const ImageCorpus& corpus, const ImageFormat& format,
               const ImageBatchOptions& options, DataPosition start = {});

  ImageBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const ImageCorpus* corpus_;
  ImageFormat format_;
  ImageBatchOptions options_;
  EpochWalk walk_;
};

}  // namespace tapestry
