#include "apps/tasks/prompts/chat.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/tasks/prompts/prompt_answering.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/training_loss.h"
#include "data/batches/batch_rows.h"
#include "data/examples/talks.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                         "sep_token", "cls_token", "mask_token"};

Json came_with(const TokenizerPair& tokenizers, const char* name) {
  const auto file = tokenizers.came_with.find(name);
  if (file == tokenizers.came_with.end()) return Json::object();
  Json json = Json::parse(file->second, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

// A text, or an object with the text as its content.
std::string text_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  return token.is_object() ? token.value("content", "") : "";
}

// The special tokens that the model's own files name, or else those of its vocabulary.
std::string special_tokens(const TokenizerPair& tokenizers) {
  Json tokens = Json::object();
  bool known = false;
  for (const char* const file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const Json json = came_with(tokenizers, file);
    known = known || !json.empty();
    for (const char* const name : kSpecialNames) {
      const std::string text = text_of(json.value(name, Json()));
      if (!text.empty()) tokens[name] = text;
    }
  }
  if (!known) {
    const Tokenizer& tokenizer = *tokenizers.source;
    tokens["bos_token"] = tokenizer.piece(tokenizer.special().bos);
    tokens["eos_token"] = tokenizer.piece(tokenizer.special().eos);
  }
  return tokens.dump();
}

// Puts the template that the config chooses among the files of the model.
void settle_template(const Config& config, TokenizerPair& tokenizers) {
  const DataOptions& data = config.data;
  if (!data.chat_template_path.empty()) {
    const std::string source = read_file(data.chat_template_path);
    ChatTemplate(source, data.chat_template_path);  // its errors name the file
    tokenizers.came_with[kTemplateFile] = source;
  } else if (data.chat_template != DataOptions::kOwnTemplate) {
    const auto built_in = built_in_templates();
    const auto found = std::ranges::find(built_in, data.chat_template, &BuiltInTemplate::name);
    tokenizers.came_with[kTemplateFile] = found->source;
  } else if (chat_template_of(tokenizers).empty()) {
    tokenizers.came_with[kTemplateFile] = usual_chat_template().source();
  }
}

// Targets stay on the host: the loss validates them without waiting for the GPU.
LanguageModel::Batch on_device(const BlockBatch& batch, Device device) {
  return {batch.ids.to(device), batch.targets,
          batch.lengths.defined() ? batch.lengths.to(device) : Tensor()};
}

LossSums loss_over(const TextModel& model, const TalkCorpus& corpus,
                   const CrossEntropyOptions& options, const RankGroup& group = {}) {
  return loss_over_epoch(TalkBatches(corpus, unshuffled(model.config.batch)), group,
                         [&](const BlockBatch& batch) {
                           return model.model.loss(on_device(batch, model.device()), options);
                         });
}

TalkCorpus load_for_validation(const TextModel& model, const std::vector<CorpusSpec>& corpora,
                               const ChatFormat& format, const LoadContext& context = {}) {
  CorpusOptions whole = model.config.data.corpus;
  whole.overlong = "truncate";
  return load_talks(with_format(corpora, format), *model.tokenizers.source, whole, context);
}

// The last answer of talks, as the model would give it.
std::vector<Sample> samples_of(const TextModel& model, const TalkCorpus& corpus, int64_t wanted) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  std::vector<Sample> samples;
  std::vector<GreedyPrompt> prompts;
  for (const int64_t i : shown_examples(wanted, corpus.size())) {
    const auto tokens = corpus.tokens[i], answers = corpus.answers[i];
    const auto begin = tokens.end() - answers[answers.size() - 2];
    const auto end = tokens.end() - answers[answers.size() - 1];
    std::vector<int32_t> ids = corpus.special.beginning_of(tokens);
    ids.insert(ids.end(), tokens.begin(), begin);
    samples.push_back({.given = {{"prompt", tokenizer.decode({tokens.begin(), begin})},
                                 {"reference", tokenizer.decode({begin, end})}}});
    prompts.push_back({std::move(ids), end - begin});
  }
  const std::vector<std::string> outputs = greedy_answers(model, corpus.special, prompts);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].output = outputs[i];
  return samples;
}

struct ChatKind {
  ChatKind(const Config& config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    const ChatFormat format = settle_chat(config, tokenizers);
    teacher = read_teacher(config, tokenizers, report);
    train = load_talks(with_format(config.data.train, format), *tokenizers.source,
                       config.data.corpus, load_context(config, report, "train"));
    report_counts("training data", train, report);
    model = std::make_unique<TextModel>(config, std::move(tokenizers), ModelUse::kTraining);
    held_out = load_held_out_sets<TalkCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_for_validation(*model, corpora, format, context);
        });
  }

  TalkBatches batches(DataPosition start) const {
    return TalkBatches(train, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const BlockBatch& batch) {
    return {.tokens = batch.lengths.defined() ? sum_of(batch.lengths) : batch.ids.numel(),
            .targets = static_cast<double>(batch.tokens)};
  }
  CrossEntropy loss(const BlockBatch& batch, const CrossEntropyOptions& options) const {
    return training_loss(model->model, on_device(batch, model->device()), options, teacher.get());
  }
  std::vector<std::string> texts(const BlockBatch& batch) const {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return model->tokenizers.source->decode(
          batch.lengths.defined() ? ids_of_row(batch.ids, row, batch.lengths)
                                  : ids_of_row(batch.ids, row, batch.ids.shape()[1]));
    });
  }
  std::map<std::string, double> measure(const TalkCorpus& corpus,
                                        const CrossEntropyOptions& options, const RankGroup& group,
                                        ValidationDetails* details) const {
    show_samples(details, [&] { return samples_of(*model, corpus, details->wanted); });
    return loss_over(*model, corpus, options, group).metrics();
  }
  int64_t choices() const { return model->tokenizers.source->vocab_size(); }

  std::unique_ptr<TextModel> model;
  std::unique_ptr<Teacher> teacher;  ///< of training.teacher
  TalkCorpus train;
  OfHeldOut<TalkCorpus> held_out;
};

}  // namespace

std::string chat_template_of(const TokenizerPair& tokenizers) {
  const auto file = tokenizers.came_with.find(kTemplateFile);
  if (file != tokenizers.came_with.end()) return file->second;
  const Json config = came_with(tokenizers, "tokenizer_config.json");
  const Json text = config.value("chat_template", Json());
  if (text.is_string()) return text.get<std::string>();
  for (const Json& named : text.is_array() ? text : Json::array()) {
    if (named.is_object() && named.value("name", "") == "default")
      return named.value("template", "");
  }
  return "";
}

ChatFormat chat_format_of(const TokenizerPair& tokenizers, const std::string& folder) {
  const std::string source = chat_template_of(tokenizers);
  ChatFormat format;
  if (!source.empty()) format.chat = ChatTemplate(source, folder + "/" + kTemplateFile);
  format.tokens = special_tokens(tokenizers);
  return format;
}

ChatFormat settle_chat(const Config& config, TokenizerPair& tokenizers) {
  settle_template(config, tokenizers);
  ChatFormat format = chat_format_of(tokenizers, "data.chat_template");
  format.loss_on = config.data.loss_on;
  return format;
}

std::vector<CorpusSpec> with_format(std::vector<CorpusSpec> corpora, const ChatFormat& format) {
  const auto shared = std::make_shared<const ChatFormat>(format);
  for (CorpusSpec& spec : corpora) spec.chat = shared;
  return corpora;
}

std::unique_ptr<TrainingTask> make_chat_task(const Config& config, TokenizerPair tokenizers,
                                             const TaskPlace& place, const Report& report) {
  return make_supervised<ChatKind>(config, std::move(tokenizers), place, report);
}

Evaluation evaluate_chat(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora) {
  const std::string folder = files.folder;
  const auto loaded = TextModel::load(std::move(files), device, "evaluate", kModelsText);
  const TextModel& model = *loaded;
  ChatFormat format = chat_format_of(model.tokenizers, folder);
  format.loss_on = model.config.data.loss_on;
  const TalkCorpus talks = load_for_validation(model, corpora, format);
  warn_of_dropped(talks.counts);
  Evaluation result;
  result.add_losses(loss_over(model, talks, {}));
  result.add_count("talks", talks.size());
  return result;
}

}  // namespace tapestry
