// /attention: what --attention of the commands writes, of one text and its answer.
#include "apps/commands/pages/attention_page.h"
#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "apps/tasks/classes/classification.h"
#include "apps/tasks/long_line.h"
#include "data/tokenizers/special_words.h"

namespace tapestry {
namespace {

constexpr int64_t kMostTokens = 256;
constexpr int64_t kMostNumbers = 2'000'000;

void check_tokens(const std::vector<int32_t>& ids) {
  if (ids.empty()) refuse(400, "the text is empty.");
  if (std::ssize(ids) > kMostTokens) {
    refuse(400, "the text has ", ids.size(), " tokens, attention is told of at most ", kMostTokens,
           '.');
  }
}

AttentionPage page_of_pair(const Service& service, ServedModel& model, const Call& call) {
  const Translator& pairs = model.pairs();
  const std::string text = call.text("text");
  const std::vector<int32_t> source = pairs.tokenizers().source->encode(text);
  check_tokens(source);
  std::vector<int32_t> target;
  if (call.has("answer")) {
    target = pairs.tokenizers().target->encode(call.text("answer"));
  } else {
    const Service::Admitted admitted(service, 1);
    const auto found = model.translate({text}, model.config().generation, call.end);
    if (!found.at(0).empty()) target = found[0][0].tokens;
  }
  check_tokens(target);
  if (std::ssize(target) >= pairs.longest() ||
      std::ssize(source) > pairs.longest() - pairs.rows().source.size()) {
    refuse(400, "the texts are longer than the model reads, ", pairs.longest(), " tokens.");
  }
  const Turns::Turn turn(model.computing(), call.end);
  return attention_page(pairs, source, target);
}

// What a model reads one text by.
struct ReadText {
  std::vector<const Trunk*> trunks;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> ids;
};

ReadText read_text(ServedModel& model, const std::string& text) {
  if (model.can(kContinuesText)) {
    const TextModels& texts = model.texts();
    std::vector<int32_t> ids = ids_to_score(texts, text, 1);
    if (ids.size() > 1) ids.pop_back();  // the end, which nothing follows
    return {texts.trunks(), texts.first().tokenizers.source, std::move(ids)};
  }
  if (model.has_masked()) {
    const TextModel& masked = model.masked();
    const auto reader = with_special_words(masked.tokenizers.source);
    return {{&masked.model.trunk},
            masked.tokenizers.source,
            in_frame(reader->special().masked(), reader->encode(text))};
  }
  if (!model.has_classifier()) refuse(400, "the model '", model.name(), "' shows no attention.");
  const TextClassifier& classifier = model.classifier();
  if (reads_text_pairs(classifier.config)) {
    refuse(400, "the model '", model.name(),
           "' reads two texts in a row, whose attention is shown "
           "by `tapestry classify --attention` only.");
  }
  return {{&classifier.model.trunk},
          classifier.tokenizers.source,
          encoder_input(classifier.config, *classifier.tokenizers.source, text, 1).ids};
}

AttentionPage page_of_text(ServedModel& model, const Call& call) {
  const ReadText read = read_text(model, call.text("text") + call.text("answer"));
  check_tokens(read.ids);
  const int64_t longest = model.config().model.longest_sequence();
  if (std::ssize(read.ids) > longest) {
    refuse(400, "the text has ", read.ids.size(), " tokens, the model reads at most ", longest,
           '.');
  }
  const Turns::Turn turn(model.computing(), call.end);
  return attention_page(read.trunks, *read.tokenizer, read.ids);
}

Reply answer_attention(const Service& service, const Call& call) {
  constexpr auto kAny = static_cast<Ability>(kTranslates | kContinuesText | kFillsMasks |
                                             kClassifies | kFindsClasses);
  const auto held = service.model_for(call, kAny);
  ServedModel& model = *held;
  const bool translates = model.can(kTranslates);
  std::optional<Service::Admitted> admitted;
  if (!translates) admitted.emplace(service, 1);
  AttentionPage page = translates ? page_of_pair(service, model, call) : page_of_text(model, call);
  page.title = call.text("text");
  int64_t numbers = 0;
  for (AttentionMap& map : page.maps) {
    if (!call.is_true("scores")) map.products = map.scores = {};
    numbers += map.weights.numel() * (map.scores.defined() ? 3 : 1);
  }
  if (numbers > kMostNumbers) {
    refuse(400, "the attention has ", numbers, " numbers, at most ", kMostNumbers,
           " are told; ask with a shorter text.");
  }
  return {.body = attention_json({page})};
}

}  // namespace

extern const Endpoint kAttentionEndpoint{
    "POST",
    "/attention",
    "Which tokens attend to which, in each layer and head, as --attention FILE.json writes it",
    {{"text", FieldType::kText, "what the model reads", true},
     {"answer", FieldType::kText,
      "its translation or continuation; without it the model translates"},
     {"scores", FieldType::kBoolean, "products and scores, too"},
     {"model", FieldType::kText, "name of a model; without it the first that can do this"}},
    answer_attention};

}  // namespace tapestry
