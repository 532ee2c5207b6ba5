// Attention weights for people to look at: an HTML page of heat maps, or a plain JSON table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/output_file.h"
#include "core/tensor.h"

namespace tapestry {

/// The tokens along one side of a map.
struct AttentionAxis {
  std::string name;                 ///< "source"
  std::vector<std::string> labels;  ///< a token's piece
};

/// The weights of one attention layer: for each head and row, the share of each column.
struct AttentionMap {
  std::string name;      ///< "encoder layer 1, self-attention"
  size_t rows, columns;  ///< axes of the page: tokens that ask, tokens that answer
  Tensor weights;        ///< (H, rows, columns) on the CPU, floating
  /// The same shape, or undefined: q k^T before scaling, and the input of the softmax; -inf for
  /// hidden keys.
  Tensor products = {}, scores = {};
};

/// The image that the columns of all maps are patches of. Column 0 is the image's CLS token, then
/// come the patches row by row; the only row is the CLS token's.
struct AttentionImage {
  int64_t height, width, channels;  ///< 1: grey, 3: red, green, blue
  std::vector<uint8_t> pixels;      ///< (height, width, channels)
  int64_t patch_size;
};

/// A model's attention for one input.
struct AttentionPage {
  std::string title;
  std::vector<AttentionAxis> axes = {};
  std::vector<AttentionMap> maps = {};
  std::optional<AttentionImage> image = {};
};

/// A page that shows all heads at a glance, and each of them or their mean large, on the image if
/// there is one. It loads no other file.
std::string attention_html(const std::vector<AttentionPage>& pages);

/// {"pages": [{"title", "axes": [{"name", "tokens"}], "maps": [{"name", "rows", "columns",
/// "heads", "products", "scores"}], "image"}]}: rows and columns name axes, heads[h][t][s] is a
/// weight, and where they are known, products[h][t][s] and scores[h][t][s] are what it comes from:
/// the product of query and key, and that times the scale with all that is added, null where the
/// key is hidden. Images have
/// "height", "width", "channels", "patch_size" and their "pixels" as bytes.
std::string attention_json(const std::vector<AttentionPage>& pages);

/// Collects the pages of the first inputs of a command.
class AttentionBook {
 public:
  /// `path` of the file, whose ending ".json" selects the format; "": no file. Throws as OutputFile
  /// does, so that a wrong path is found before the work.
  explicit AttentionBook(const std::string& path);

  /// True if another page is wanted.
  bool wants() const { return file_.has_value() && pages_.size() < kMostPages; }
  void add(AttentionPage page) { pages_.push_back(std::move(page)); }
  /// Adds a page under the user's own text, unknown parts included.
  void add(AttentionPage page, const std::string& text) {
    page.title = text;
    add(std::move(page));
  }
  /// Throws as OutputFile does.
  void write();

 private:
  static constexpr size_t kMostPages = 20;

  bool json_ = false;
  std::optional<OutputFile> file_;
  std::vector<AttentionPage> pages_;
};

}  // namespace tapestry
