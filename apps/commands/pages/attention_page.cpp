#include "apps/commands/pages/attention_page.h"

#include <span>

#include "core/base/text.h"
#include "data/batches/framed_rows.h"

namespace tapestry {
namespace {

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const int32_t id : ids) pieces.push_back(tokenizer.piece(id));
  return pieces;
}

Tensor one_row(const std::vector<int32_t>& ids, Device device) {
  return Tensor::from(ids, {1, std::ssize(ids)}).to(device);
}

// Maps of one input out of a recorder's weights, in their order.
class Maps {
 public:
  Maps(const AttentionRecorder& recorder, std::string prefix, AttentionPage& page)
      : recorder_(recorder), prefix_(std::move(prefix)), page_(page) {}

  void take(const std::string& name, size_t rows, size_t columns) {
    const AttentionRecorder::Map& map = recorder_.maps().at(next_++);
    page_.maps.push_back({.name = prefix_ + name,
                          .rows = rows,
                          .columns = columns,
                          .weights = of_first(map.weights),
                          .products = of_first(map.products),
                          .scores = of_first(map.scores)});
  }

 private:
  // (1, H, T, S) -> (H, T, S), on the CPU.
  static Tensor of_first(const Tensor& recorded) {
    if (!recorded.defined()) return {};
    const Shape& shape = recorded.shape();
    const Tensor host = recorded.to(Device{});
    return host.to(wider(host.dtype())).reshape({shape[1], shape[2], shape[3]});
  }

  const AttentionRecorder& recorder_;
  std::string prefix_;
  AttentionPage& page_;
  size_t next_ = 0;
};

// Prefix for the names of one model's maps, if there are several models.
std::string prefix_of(size_t model, size_t models) {
  return models > 1 ? concat("model ", model + 1, ", ") : "";
}

constexpr size_t kSource = 0, kTarget = 1, kWritten = 2;  // axes of a translation

void take_all(const EncoderDecoder& model, Maps maps) {
  for (int64_t i = 1; i <= model.options.encoder_layers; ++i) {
    maps.take(concat("encoder layer ", i, ", self-attention"), kSource, kSource);
  }
  for (int64_t i = 1; i <= model.options.decoder_layers; ++i) {
    if (!model.options.is_recurrent()) {
      maps.take(concat("decoder layer ", i, ", self-attention"), kTarget, kTarget);
    }
    maps.take(concat("decoder layer ", i, ", cross-attention"), kTarget, kSource);
  }
}

void take_all(const RnnAttention&, Maps maps) { maps.take("alignment", kWritten, kSource); }

}  // namespace

AttentionPage attention_page(const Translator& models, const std::vector<int32_t>& source,
                             const std::vector<int32_t>& target) {
  const PairRows& around = models.rows();
  const std::vector<int32_t> read = in_frame(around.source, source);
  const std::vector<int32_t> written = in_frame(around.target, target);
  std::vector<int32_t> fed(written.begin(), written.end() - 1);
  fed.insert(fed.begin(), around.start);
  const TokenizerPair& tokenizers = models.tokenizers();
  AttentionPage page;
  page.title = join(pieces_of(*tokenizers.source, read), " ");
  page.axes = {{"source", pieces_of(*tokenizers.source, read)},
               {"target", pieces_of(*tokenizers.target, fed)},
               {"written", pieces_of(*tokenizers.target, written)}};
  const std::vector<PairModel>& members = models.models().models;
  const Device device = device_of(models.models());
  const PairInput input{one_row(read, device),
                        Tensor::full({1}, double(read.size()), DType::kInt32).to(device),
                        one_row(fed, device)};
  for (size_t i = 0; i < members.size(); ++i) {
    AttentionRecorder recorder(/*with_scores=*/true);
    pair_logits(members[i], input);
    std::visit(
        [&](const auto* model) {
          take_all(*model, Maps(recorder, prefix_of(i, members.size()), page));
        },
        members[i]);
  }
  return page;
}

AttentionPage attention_page(const std::vector<const Trunk*>& trunks, const Tokenizer& tokenizer,
                             const std::vector<int32_t>& ids, const Tensor& segments) {
  AttentionPage page;
  page.axes = {{"text", pieces_of(tokenizer, ids)}};
  page.title = join(page.axes[0].labels, " ");
  for (size_t i = 0; i < trunks.size(); ++i) {
    const Trunk& trunk = *trunks[i];
    AttentionRecorder recorder(/*with_scores=*/true);
    trunk(one_row(ids, trunk.embedding.table.device()), {}, segments);
    Maps maps(recorder, prefix_of(i, trunks.size()), page);
    for (size_t layer = 1; layer <= trunk.stack.layers.size(); ++layer) {
      maps.take(concat("layer ", layer, ", self-attention"), 0, 0);
    }
  }
  return page;
}

AttentionPage attention_page(const TextClassifier& model, const FramedText& text) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const FramedRows row = framed_rows({text}, tokenizer.special().filler());
  return attention_page({&model.model.trunk}, tokenizer, text.ids, model.segments(row.segments));
}

AttentionPage attention_page(const SpanModel& model, const QuestionCorpus& questions,
                             int64_t window) {
  const QuestionBatch batch = make_question_batch(questions, std::span(&window, 1));
  AttentionPage page;
  page.axes = {{"text", pieces_of(*model.tokenizers.source, batch.ids.to_vector<int32_t>())}};
  const auto& found = questions.windows.at(static_cast<size_t>(window));
  page.title = questions.questions.at(static_cast<size_t>(found.question)).question;
  AttentionRecorder recorder(/*with_scores=*/true);
  model.model(batch.ids.to(model.device()), batch.lengths, model.segments(batch.segments));
  Maps maps(recorder, "", page);
  for (size_t layer = 1; layer <= model.model.trunk.stack.layers.size(); ++layer) {
    maps.take(concat("layer ", layer, ", self-attention"), 0, 0);
  }
  return page;
}

AttentionPage attention_page(const ImageModel& model, const std::string& path) {
  const auto* vit = std::get_if<VisionTransformer>(&model.model.kind);
  if (vit == nullptr) {
    fail(ErrorKind::kConfig, "[attention] a model of images must be of type vit to attend.");
  }
  const ImageFormat& format = model.config.data.image;
  ImageSize size = format.size;
  const int64_t patch = vit->options.patch_size;
  AttentionPage page{.title = path, .axes = {{"asks", {"CLS"}}, {"patches", {"CLS"}}}};
  page.image = {size.height, size.width, size.channels, read_image(path, size), patch};
  for (int64_t y = 1; y <= size.height / patch; ++y) {
    for (int64_t x = 1; x <= size.width / patch; ++x) {
      page.axes[1].labels.push_back(concat("row ", y, ", column ", x));
    }
  }
  AttentionRecorder recorder(/*with_scores=*/true);
  vit->hidden(normalised(page.image->pixels, format).to(model.store.dtype()).to(model.device()));
  Maps maps(recorder, "", page);
  for (size_t layer = 1; layer <= vit->encoder.layers.size(); ++layer) {
    maps.take(concat("layer ", layer, ", self-attention"), 0, 1);
    AttentionMap& map = page.maps.back();
    for (Tensor* all : {&map.weights, &map.products, &map.scores}) {
      *all = slice(Var(*all), 1, 0, 1).value();  // (H, T, T), of which the CLS token's row is kept
    }
  }
  return page;
}

}  // namespace tapestry
