// /v1/embeddings, /score, /fill-mask, /classify, /rate, /v1/rerank and /answer: one pass through a
// model each.
#include <algorithm>
#include <bit>
#include <numeric>

#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/token_scores.h"
#include "apps/tasks/classes/classification.h"
#include "apps/tasks/embedding.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/question_answering.h"
#include "data/corpora/empty_text.h"
#include "data/tokenizers/special_words.h"

namespace tapestry {
namespace {

std::string base64(std::string_view bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

// The rows of texts that are read as a whole, none of which may be empty; with a second text each
// unless `seconds` is empty.
std::vector<FramedText> read_texts(const Config& config, const Tokenizer& tokenizer,
                                   const std::vector<std::string>& texts,
                                   const std::vector<std::string>& seconds = {}) {
  std::vector<FramedText> all;
  for (size_t i = 0; i < texts.size(); ++i) {
    all.push_back(encoder_input(config, tokenizer, texts, seconds, i));
    if (all.back().empty()) refuse(400, "text ", i + 1, " is empty.");
  }
  return all;
}

// What a classifier reads of the fields text and text_pair.
std::vector<FramedText> read_texts(const TextClassifier& model, const Call& call) {
  const std::vector<std::string> texts = call.texts("text"), seconds = call.texts("text_pair");
  check_second_texts("serve", model.config, texts, seconds);
  return read_texts(model.config, *model.tokenizers.source, texts, seconds);
}

// Calls answer(texts, number of the first) for some texts at a time: memory does not grow with
// them.
template <class Answer>
void in_batches(ServedModel& model, const Call& call, const std::vector<FramedText>& texts,
                Answer answer) {
  constexpr int64_t kBatch = 64;
  for (int64_t first = 0; first < std::ssize(texts); first += kBatch) {
    const auto begin = texts.begin() + first;
    const std::vector<FramedText> some(begin, begin + std::min(kBatch, std::ssize(texts) - first));
    const Turns::Turn turn(model.computing(), call.end);
    answer(some, first);
  }
}

// The numbers of a model of text_regression.
std::vector<double> rated(ServedModel& model, const Call& call,
                          const std::vector<FramedText>& texts) {
  std::vector<double> numbers;
  in_batches(model, call, texts, [&](const std::vector<FramedText>& some, int64_t) {
    for (const double number : rate_texts(model.classifier(), some)) numbers.push_back(number);
  });
  return numbers;
}

Reply answer_embeddings(const Service& service, const Call& call) {
  const auto held = service.model_for(call, kEmbedsTexts);
  ServedModel& model = *held;
  const EmbeddingModel& embedder = model.embedder();
  const std::string format = call.text("encoding_format", "float");
  if (format != "float" && format != "base64") {
    refuse(400, "the field 'encoding_format' must be float or base64, got '", format, "'.");
  }
  const std::vector<std::string> inputs = call.texts("input");
  const Service::Admitted admitted(service, std::ssize(inputs));
  const auto texts = read_texts(embedder.config, *embedder.tokenizers.source, inputs);
  const int64_t size = embedder.config.model.text_vector_size();
  const Tensor vectors = Tensor::empty({std::ssize(texts), size});
  in_batches(model, call, texts, [&](const std::vector<FramedText>& some, int64_t first) {
    vectors.slice(first, first + std::ssize(some))
        .copy_from(embed(embedder, some).to(DType::kFloat32));
  });
  int64_t tokens = 0;
  Json data = Json::array();
  for (int64_t i = 0; i < std::ssize(texts); ++i) {
    const float* const first = vectors.data<float>() + i * size;
    tokens += std::ssize(texts[static_cast<size_t>(i)].ids);
    Json vector = std::vector<float>(first, first + size);
    static_assert(std::endian::native == std::endian::little);
    if (format == "base64") {
      vector =
          base64({reinterpret_cast<const char*>(first), static_cast<size_t>(size) * sizeof(float)});
    }
    data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(vector)}});
  }
  return json_reply({{"object", "list"},
                     {"data", std::move(data)},
                     {"model", model.name()},
                     {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

Reply answer_score(const Service& service, const Call& call) {
  const std::vector<std::string> texts = call.texts("text");
  const Service::Admitted admitted(service, std::ssize(texts));
  std::vector<Score> scores;
  const Tokenizer* tokenizer = nullptr;
  std::shared_ptr<ServedModel> held;
  if (call.has("source")) {
    const std::vector<std::string> sources = call.texts("source");
    if (sources.size() != texts.size()) {
      refuse(400, "expected a source for each of ", texts.size(), " texts, got ", sources.size(),
             '.');
    }
    held = service.model_for(call, kTranslates);
    ServedModel& model = *held;
    scores = model.score(sources, texts, call.end);
    tokenizer = &model.target_tokenizer();
  } else {
    held = service.model_for(call, kContinuesText);
    ServedModel& model = *held;
    tokenizer = &model.texts().tokenizer();
    for (const std::string& text : texts) {
      const std::vector<int32_t> ids = ids_to_score(model.texts(), text, 1);
      const Turns::Turn turn(model.computing(), call.end);
      scores.push_back(score_texts(model.texts(), {ids}).at(0));
    }
  }
  Json list = Json::array();
  for (const Score& score : scores) {
    Json pieces = Json::array();
    for (const int32_t id : score.ids) pieces.push_back(tokenizer->piece(id));
    list.push_back({{"log_probability", score.log_probability},
                    {"tokens", std::move(pieces)},
                    {"token_log_probabilities", score.each}});
  }
  return json_reply({{"scores", std::move(list)}});
}

int64_t count_of(const Call& call, const char* field, int64_t otherwise) {
  const int64_t count = call.integer(field, otherwise);
  if (count < 1) refuse(400, "the field '", field, "' must be at least 1, got ", count, '.');
  return count;
}

Reply answer_fill_mask(const Service& service, const Call& call) {
  constexpr int64_t kGuesses = 5;
  const auto held = service.model_for(call, kFillsMasks);
  ServedModel& model = *held;
  if (!model.has_masked()) refuse(400, "the model '", model.name(), "' is not a masked model.");
  const TextModel& masked = model.masked();
  const Tokenizer& tokenizer = *masked.tokenizers.source;
  const int64_t top_k = count_of(call, "top_k", kGuesses);
  const std::vector<std::string> texts = call.texts("text");
  const Service::Admitted admitted(service, std::ssize(texts));
  const auto with_masks = with_special_words(masked.tokenizers.source);
  const TextFrame frame = tokenizer.special().masked();
  Json list = Json::array();
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = with_masks->encode(text);
    const int64_t most = masked.config.model.longest_sequence() - frame.size();
    if (is_empty_text(text, ids)) refuse(400, "text ", list.size() + 1, " is empty.");
    if (std::ssize(ids) > most) {
      refuse(400, "text ", list.size() + 1, " has ", ids.size(),
             " tokens, the model reads at most ", most, '.');
    }
    Json masks = Json::array();
    const Turns::Turn turn(model.computing(), call.end);
    for (const auto& guesses : fill_masks(masked, in_frame(frame, ids), top_k)) {
      Json words = Json::array();
      for (const Fill& guess : guesses) {
        const std::string word = tokenizer.decode({guess.token});
        words.push_back({{"text", word.empty() ? tokenizer.piece(guess.token) : word},
                         {"probability", guess.probability}});
      }
      masks.push_back(std::move(words));
    }
    list.push_back(std::move(masks));
  }
  return json_reply({{"masks", std::move(list)}});
}

Reply answer_classify(const Service& service, const Call& call) {
  const auto held = service.model_for(call, static_cast<Ability>(kClassifies | kFindsClasses));
  ServedModel& model = *held;
  if (!model.has_classifier()) refuse(400, "the model '", model.name(), "' classifies no texts.");
  const TextClassifier& classifier = model.classifier();
  const Service::Admitted admitted(service, std::ssize(call.texts("text")));
  std::vector<ClassProbabilities> found;
  in_batches(model, call, read_texts(classifier, call),
             [&](const std::vector<FramedText>& some, int64_t) {
               for (auto& one : model.can(kClassifies) ? classify(classifier, some)
                                                       : class_probabilities(classifier, some)) {
                 found.push_back(std::move(one));
               }
             });
  Json list = Json::array();
  for (const ClassProbabilities& probabilities : found) {
    std::vector<size_t> order(probabilities.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t at) { return probabilities[at]; });
    Json classes = Json::array();
    for (const size_t at : order) {
      classes.push_back(
          {{"label", classifier.config.data.labels[at]}, {"probability", probabilities[at]}});
    }
    list.push_back(std::move(classes));
  }
  return json_reply({{"classes", std::move(list)}});
}

Reply answer_rate(const Service& service, const Call& call) {
  const auto held = service.model_for(call, kRatesTexts);
  const Service::Admitted admitted(service, std::ssize(call.texts("text")));
  return json_reply({{"numbers", rated(*held, call, read_texts(held->classifier(), call))}});
}

Reply answer_rerank(const Service& service, const Call& call) {
  const auto held = service.model_for(call, kRatesTexts);
  const TextClassifier& model = held->classifier();
  const std::vector<std::string> documents = call.texts("documents");
  const int64_t top_n = count_of(call, "top_n", std::max<int64_t>(1, std::ssize(documents)));
  const Service::Admitted admitted(service, std::ssize(documents));
  const auto rows = read_texts(model.config, *model.tokenizers.source,
                               std::vector(documents.size(), call.text("query")), documents);
  const std::vector<double> numbers = rated(*held, call, rows);
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t at) { return numbers[at]; });
  order.resize(std::min(order.size(), static_cast<size_t>(top_n)));
  Json results = Json::array();
  for (const size_t at : order) {
    Json& result = results.emplace_back(Json{{"index", at}, {"relevance_score", numbers[at]}});
    if (call.is_true("return_documents")) result["document"] = {{"text", documents[at]}};
  }
  int64_t tokens = 0;
  for (const FramedText& row : rows) tokens += std::ssize(row.ids);
  return json_reply({{"model", held->name()},
                     {"results", std::move(results)},
                     {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

Reply answer_question(const Service& service, const Call& call) {
  const auto held = service.model_for(call, kFindsAnswers);
  ServedModel& model = *held;
  const SpanModel& spans = model.spans();
  const int64_t n_best = count_of(call, "n_best", 1);
  const Service::Admitted admitted(service, 1);
  const std::string context = call.text("context"), question = call.text("question");
  if (is_blank(context) || is_blank(question)) {
    refuse(400, "context and question must not be empty.");
  }
  const QuestionCorpus corpus =
      encode_questions({{.id = "",
                         .context = std::make_shared<const std::string>(context),
                         .question = question,
                         .answers = {},
                         .place = "the request"}},
                       *spans.tokenizers.source, question_options(spans.config),
                       /*labelled=*/false);
  Json list = Json::array();
  const Turns::Turn turn(model.computing(), call.end);
  for (const auto& answers : find_answers(spans, corpus, n_best)) {
    for (const FoundAnswer& answer : answers) {
      list.push_back({{"text", answer.text},
                      {"start", answer.begin},
                      {"end", answer.end},
                      {"probability", answer.probability}});
    }
  }
  return json_reply({{"answers", std::move(list)}});
}

constexpr Field kModelField{"model", FieldType::kText,
                            "name of a model; without it the first that can do this"};

const Field kSecondTexts{"text_pair", FieldType::kTextOrTexts,
                         "of a model that reads two texts in a row: the second of each"};

}  // namespace

extern const Endpoint kEmbeddingsEndpoint{"POST",
                                          "/v1/embeddings",
                                          "The vector of a text or of several (as OpenAI)",
                                          {{"input", FieldType::kTextOrTexts, "texts", true},
                                           {"encoding_format", FieldType::kText, "float or base64"},
                                           kModelField},
                                          answer_embeddings};

extern const Endpoint kScoreEndpoint{
    "POST",
    "/score",
    "The log-probability of texts, given their sources if there are any",
    {{"text", FieldType::kTextOrTexts, "what is scored", true},
     {"source", FieldType::kTextOrTexts, "of a translation model: a source for each text"},
     kModelField},
    answer_score};

extern const Endpoint kFillMaskEndpoint{
    "POST",
    "/fill-mask",
    "The most probable words for each <mask>",
    {{"text", FieldType::kTextOrTexts, "texts with <mask>", true},
     {"top_k", FieldType::kInteger, "words for each mask"},
     kModelField},
    answer_fill_mask};

extern const Endpoint kClassifyEndpoint{
    "POST",
    "/classify",
    "The probability of each class, the most probable first",
    {{"text", FieldType::kTextOrTexts, "what is classified", true}, kSecondTexts, kModelField},
    answer_classify};

extern const Endpoint kRateEndpoint{
    "POST",
    "/rate",
    "The number that a model of text_regression gives each text",
    {{"text", FieldType::kTextOrTexts, "what is rated", true}, kSecondTexts, kModelField},
    answer_rate};

extern const Endpoint kRerankEndpoint{
    "POST",
    "/v1/rerank",
    "Documents in the order of their relevance to a query (as Jina and Cohere)",
    {{"query", FieldType::kText, "what is looked for", true},
     {"documents", FieldType::kTextOrTexts, "where", true},
     {"top_n", FieldType::kInteger, "so many documents, the most relevant first"},
     {"return_documents", FieldType::kBoolean, "the texts, too"},
     kModelField},
    answer_rerank};

extern const Endpoint kAnswerEndpoint{"POST",
                                      "/answer",
                                      "The spans of a context that answer a question",
                                      {{"context", FieldType::kText, "the text", true},
                                       {"question", FieldType::kText, "about it", true},
                                       {"n_best", FieldType::kInteger, "answers, best first"},
                                       kModelField},
                                      answer_question};

}  // namespace tapestry
