// tapestry embed: a vector for each line, as JSON or as an array of NumPy.
#include <fmt/format.h>

#include <bit>

#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_rows.h"
#include "apps/commands/command.h"
#include "apps/tasks/embedding.h"
#include "core/base/error.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

struct EmbedArguments : FilterArguments {
  static constexpr const char* kFormats[] = {"jsonl", "npy"};

  std::string format = "jsonl";
};

std::string json_of(const float* vector, int64_t size) {
  std::string text = "[";
  for (int64_t i = 0; i < size; ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", vector[i]);
  return text + "]";
}

// A file of version 1.0: its header is padded so that the numbers begin at a multiple of 64.
std::string npy_of(const std::string& floats, int64_t rows, int64_t size) {
  static_assert(std::endian::native == std::endian::little);
  constexpr size_t kBefore = 10, kAlign = 64;
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, size);
  while ((kBefore + header.size() + 1) % kAlign != 0) header += ' ';
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(length & 0xff);
  file += static_cast<char>(length >> 8);
  return file + header + floats;
}

// Writes vectors in the order of the lines.
class VectorWriter {
 public:
  VectorWriter(const EmbedArguments& arguments, int64_t size, LineFilter& filter)
      : npy_(arguments.format == "npy"), size_(size), filter_(filter) {}

  /// The vector of line `number`, from 0; null of an empty line: an empty line of JSON, but an
  /// array has a row for each.
  void add(const float* vector, int64_t number) {
    if (!npy_) {
      if (vector != nullptr) filter_.out() << json_of(vector, size_);
      filter_.out() << '\n';
      return;
    }
    if (vector == nullptr) {
      fail(ErrorKind::kData, "[embed] line ", number + 1,
           " is empty: it has no vector, and an array has a row for each line.");
    }
    floats_.append(reinterpret_cast<const char*>(vector),
                   static_cast<size_t>(size_) * sizeof(float));
    ++rows_;
  }
  void finish() {
    if (npy_) filter_.out() << npy_of(floats_, rows_, size_);
  }

 private:
  bool npy_;
  int64_t size_;
  LineFilter& filter_;
  std::string floats_;  // an array begins with the number of its rows
  int64_t rows_ = 0;
};

int run_embed(const EmbedArguments& arguments) {
  LineFilter filter("embed", arguments);
  set_num_threads(arguments.compute.threads);
  const auto model = EmbeddingModel::load(arguments.model(), arguments.compute.device, "embed",
                                          kEmbedsTexts, arguments.models.format);
  VectorWriter writer(arguments, model->config.model.text_vector_size(), filter);
  answer_rows(filter, arguments.batch_size, model->config, *model->tokenizers.source,
              /*two_texts=*/false, [&](const LineRows& rows) {
                const Tensor vectors =
                    rows.texts.empty() ? Tensor() : embed(*model, rows.texts).to(DType::kFloat32);
                const int64_t size = model->config.model.text_vector_size();
                size_t next = 0;
                for (size_t i = 0; i < rows.lines.size(); ++i) {
                  const bool asked = next < rows.places.size() && rows.places[next] == i;
                  const float* const vector =
                      asked ? vectors.data<float>() + size * static_cast<int64_t>(next++) : nullptr;
                  writer.add(vector, rows.number + static_cast<int64_t>(i));
                }
              });
  writer.finish();
  filter.finish();
  return 0;
}

void add_embed(CLI::App& app, EmbedArguments& arguments) {
  add_model(app, arguments);
  add_format(app, arguments.models.format);
  add_input(app, arguments);
  add_output(app, arguments, "texts at a time");
  app.add_option("--format", arguments.format,
                 "jsonl: a list of numbers in each line; npy: one array of NumPy, float32")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(EmbedArguments::kFormats),
                                                     std::end(EmbedArguments::kFormats))))
      ->capture_default_str();
}

}  // namespace

extern const Command kEmbed("embed",
                            "The vector of each line of standard input, or of a file, by a model "
                            "of task embedding",
                            add_embed, run_embed);

}  // namespace tapestry
