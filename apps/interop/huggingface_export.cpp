#include "apps/interop/huggingface_export.h"

#include <algorithm>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/origin.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/export_source.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_generation.h"
#include "apps/interop/foreign_images.h"
#include "apps/interop/huggingface_tokenizer.h"
#include "apps/interop/sentence_vectors.h"
#include "apps/interop/special_ids.h"
#include "apps/tasks/prompts/talk_format.h"
#include "apps/tasks/text_models.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

std::string indented(const Json& json) { return json.dump(2) + "\n"; }

Reasons all_misfits(const Architecture& architecture, const ModelFiles& model) {
  Reasons reasons = misfits(architecture, exported_facts(architecture, model).config);
  if (architecture.counts_from_padding && examples_of(model.config).of_text() &&
      special_ids(*model.tokenizers.target).pad != 1) {
    reasons.push_back(concat("positions of a ", architecture.name,
                             " are counted from its padding, which must have the id 1"));
  }
  const bool own_tables =
      &architecture == &kMarian || architecture.type != ModelType::kEncoderDecoder;
  const ModelOptions& options = model.config.model;
  const bool tables = options.tie_word_embeddings ||
                      (architecture.may_untie && options.share_encoder_decoder_embeddings);
  const bool one = tables && counts_of(model).shared_vocab;
  if (!own_tables && !one) {
    reasons.push_back(concat(architecture.may_untie
                                 ? "two tables of embeddings or two vocabularies"
                                 : "model.tie_word_embeddings: false or two vocabularies",
                             " have no place in ", architecture.name));
  }
  return reasons;
}

Json came_with(const ModelFiles& model, const char* name) {
  return object_of_origin(model.tokenizers, name);
}

// The architecture that the model came as; null without one.
const Architecture* came_as(const ModelFiles& model) {
  const Json config = came_with(model, kConfigFile);
  const Json type = config.is_null() ? Json() : config.value("model_type", Json());
  return type.is_string() ? find_architecture(type.get<std::string>()) : nullptr;
}

// The architecture of that name, or the one that the model came as, or fits, or fits best.
const Architecture& choose(const ModelFiles& model, const std::string& name) {
  if (!name.empty()) {
    const Architecture* const found = find_architecture(name);
    if (found != nullptr) return *found;
    std::vector<std::string> known;
    for (const Architecture* row : architectures()) known.emplace_back(row->name);
    fail(ErrorKind::kConfig, "[export] --architecture must be one of ", join(known, ", "), ", got ",
         name, '.');
  }
  const Architecture* const came = came_as(model);
  if (came != nullptr && all_misfits(*came, model).empty()) return *came;
  const std::vector<const Architecture*>& all = architectures();
  return **std::min_element(all.begin(), all.end(), [&](const auto* a, const auto* b) {
    const auto distance = [&](const Architecture& row) {
      return (row.type == model.config.model_type ? 0 : 1000) + all_misfits(row, model).size();
    };
    return distance(*a) < distance(*b);
  });
}

void add_ids(const Architecture& architecture, const ModelFiles& model, Json& config) {
  if (!examples_of(model.config).of_text()) return;
  const SpecialIds ids = special_ids(*model.tokenizers.target);
  const auto number = [](std::optional<int32_t> id) { return id ? Json(*id) : Json(); };
  config["vocab_size"] = model.tokenizers.source->vocab_size();
  config["pad_token_id"] = number(ids.pad);
  const bool causal = model.config.model_type == ModelType::kDecoder;
  // Our documents begin with eos; a text that is one document begins with nothing.
  config["bos_token_id"] = !causal                         ? number(ids.bos)
                           : begins_with_eos(model.config) ? number(document_start(model))
                                                           : Json();
  config["eos_token_id"] = number(ids.eos);
  const std::vector<int32_t>& more = model.tokenizers.target->special().more_ends;
  if (!more.empty() && model.config.model_type != ModelType::kEncoder) {
    Json ends = Json::array({config["eos_token_id"]});
    for (const int32_t id : more) ends.push_back(id);
    config["eos_token_id"] = ends;
  }
  if (model.config.model_type == ModelType::kEncoderDecoder) {
    config["is_encoder_decoder"] = true;
    const tapestry::SpecialIds& own = model.tokenizers.target->special();
    config["decoder_start_token_id"] = number(own.start.value_or(own.bos));
    const std::vector<int32_t> before = own.target().before;
    if (before.size() == 1) config["forced_bos_token_id"] = before[0];
    // T5 and M2M100 end where they want to.
    const bool forced = std::ranges::any_of(architecture.ids, [](const ClassDefault& row) {
      return std::string_view(row.key) == "forced_eos_token_id";
    });
    if (forced) config["forced_eos_token_id"] = number(ids.eos);
  }
}

void add_classes(const Config& config, Json& theirs) {
  if (config.task->can(kRatesTexts)) {
    theirs["id2label"] = {{"0", "LABEL_0"}};
    theirs["label2id"] = {{"LABEL_0", 0}};
    theirs["problem_type"] = "regression";
  }
  if (!examples_of(config).has_classes) return;
  Json names = Json::object(), ids = Json::object();
  for (size_t i = 0; i < config.data.labels.size(); ++i) {
    names[std::to_string(i)] = config.data.labels[i];
    ids[config.data.labels[i]] = i;
  }
  theirs["id2label"] = names;
  theirs["label2id"] = ids;
  if (config.task->can(kClassifies)) theirs["problem_type"] = "single_label_classification";
  if (config.task->can(kFindsClasses)) theirs["problem_type"] = "multi_label_classification";
}

// True for a model of vectors, and for a masked model that was imported without a head and has not
// learnt one.
bool is_headless(const ModelFiles& model) {
  if (model.config.task->can(kEmbedsTexts)) return true;
  return model.config.model_type == ModelType::kEncoder && model.config.task->can(kFillsMasks) &&
         model.config.model.transformed_head && model.tensors.find("head.dense.weight") == nullptr;
}

// Adds the keys of the original config.json that do not follow from the model.
void add_came_with(const Architecture& architecture, const ModelFiles& model, Json& config) {
  const Json came = came_with(model, kConfigFile);
  if (came_as(model) != &architecture) return;
  if (architecture.type == ModelType::kEncoder) {  // it writes nothing: they mean nothing
    for (const char* key : {"bos_token_id", "eos_token_id"}) config.erase(key);
  }
  add_unread_keys(architecture, model.config, came, config);
}

// Adds the token that ends an answer in a talk to the ends of texts.
void add_ends_of_talks(const ModelFiles& model, Json& generation) {
  const bool came = model.tokenizers.came_with.contains("generation_config.json");
  const bool learnt = examples_of(model.config).talks;
  // A model that has not learnt talks goes home as it came.
  if (!learnt && (came || !knows_talks(model.config, model.tokenizers))) return;
  const Json named = generation.value("eos_token_id", Json());
  Json ends = named.is_array() ? named : named.is_null() ? Json::array() : Json::array({named});
  const auto reader =
      talk_tokenizer(chat_format_of(model.tokenizers, model.folder), model.tokenizers.source);
  for (const int32_t id : reader->special().more_ends) {
    if (std::ranges::find(ends, Json(id)) == ends.end()) ends.push_back(id);
  }
  if (ends.size() > 1) generation["eos_token_id"] = std::move(ends);
}

// The search options of our commands, as far as theirs can express them.
Json generation_config(const ModelFiles& model, const Json& config) {
  const Json came = came_with(model, "generation_config.json");
  if (!came.is_null()) return their_generation(model.config, came, config);
  Json generation = their_generation(model.config, Json(), config);
  const SearchOptions& search = model.config.generation;
  Json banned = Json::array();
  // Programs that a model of theirs comes from forbid nothing.
  const bool own = !model.tokenizers.target->special().one_text;
  for (const int32_t id : model.tokenizers.target->special().banned()) {
    if (own) banned.push_back({id});
  }
  if (!banned.empty()) generation["bad_words_ids"] = banned;  // theirs takes no empty list
  if (model.config.model_type == ModelType::kEncoderDecoder) {
    generation["num_beams"] = search.num_beams;
    if (search.early_stopping == EarlyStopping::kNever) {
      generation["early_stopping"] = "never";
    } else {
      generation["early_stopping"] = search.early_stopping == EarlyStopping::kTrue;
    }
    generation["max_length"] = std::min<int64_t>(model.config.model.max_position_embeddings, 512);
    if (search.length_penalty_type != LengthPenalty::kGnmt) {
      const bool average = search.length_penalty_type == LengthPenalty::kAverage;
      generation["length_penalty"] = average ? search.length_penalty : 0.0;
    }
  }
  generation["do_sample"] = search.do_sample;
  if (search.do_sample) {
    generation["temperature"] = search.temperature;
    generation["top_k"] = search.top_k;
    generation["top_p"] = search.top_p;
    if (search.min_p > 0) generation["min_p"] = search.min_p;
    if (search.epsilon_cutoff > 0) generation["epsilon_cutoff"] = search.epsilon_cutoff;
  }
  if (search.repetition_penalty != 1) generation["repetition_penalty"] = search.repetition_penalty;
  if (search.no_repeat_ngram_size != 0) {
    generation["no_repeat_ngram_size"] = search.no_repeat_ngram_size;
  }
  return generation;
}

// They go home as they came: ours have none.
void add_unread_rows(const Architecture& architecture, const ModelFiles& model,
                     std::vector<TensorToWrite>& tensors) {
  const Json all = came_with(model, kUnreadRowsFile);
  if (all.is_null() || came_as(model) != &architecture) return;
  for (TensorToWrite& tensor : tensors) {
    const auto rows = all.find(tensor.name);
    if (rows == all.end() || !rows->is_array()) continue;
    std::vector<double> values;
    for (const Json& value : *rows) values.push_back(value.is_number() ? value.get<double>() : 0);
    if (tensor.shape == Shape{std::ssize(values)}) {  // a bias of spans
      tensor.replace([values, dtype = tensor.dtype, shape = tensor.shape] {
        return Tensor::from(values, shape).to(dtype);
      });
    }
    if (tensor.shape.rank() != 2 || std::ssize(values) != 2 * tensor.shape[1]) continue;
    tensor.replace(
        [content = tensor.content, values, dtype = tensor.dtype, columns = tensor.shape[1]] {
          const Tensor table = content();
          table.slice(0, 2).copy_from(Tensor::from(values, {2, columns}).to(dtype));
          return table;
        });
  }
}

std::vector<TensorToWrite> their_tensors(const Architecture& architecture, const ModelFiles& model,
                                         const ModelFacts& facts) {
  std::vector<TensorPair> pairs = tensor_pairs(architecture, facts);
  if (folds_scale(architecture, model.config)) fold_scale(model.config, pairs);
  Layout layout = layout_of(facts);
  layout.halves_of_sinusoids = architecture.sinusoids;
  std::vector<TensorToWrite> tensors = converted_tensors(model, pairs, layout, model.config.dtype);
  for (const auto& [name, copy] : architecture.written_twice) {
    for (size_t i = 0, count = tensors.size(); i < count; ++i) {
      if (tensors[i].name != name) continue;
      TensorToWrite twice = tensors[i];
      twice.name = copy;
      tensors.push_back(std::move(twice));
    }
  }
  add_unread_rows(architecture, model, tensors);
  const ModelOptions& options = model.config.model;
  if (architecture.writes_sinusoids) {
    for (const char* name : architecture.stored_sinusoids) {
      tensors.emplace_back(name, sinusoids_in_halves(options.max_position_embeddings,
                                                     options.hidden_size, model.config.dtype));
    }
  }
  return tensors;
}

}  // namespace

const Architecture& fitting_architecture(const ModelFiles& model, const std::string& name) {
  const Architecture& architecture = choose(model, name);
  if (const Reasons reasons = all_misfits(architecture, model); !reasons.empty()) {
    fail(ErrorKind::kConfig, "[export] ", model.folder, " has no place in a ", architecture.name,
         " of Hugging Face's:\n  ", join(reasons, ";\n  "), '.');
  }
  return architecture;
}

CheckpointContent huggingface_files(const ModelFiles& model, const std::string& name,
                                    const std::string& dtype) {
  const Architecture& architecture = fitting_architecture(model, name);
  ModelFacts facts = exported_facts(architecture, model);
  Reasons none;
  Json config = their_config(architecture, facts, none);
  const bool headless = is_headless(model);
  if (headless) {
    facts.masked = facts.fills_tied = facts.fills_untied = false;
    // That of another class does something else.
    facts.pooled =
        came_as(model) == &architecture && model.tensors.find("pooler.weight") != nullptr;
    config["architectures"] = {architecture.headless};
  }
  config["torch_dtype"] = dtype.empty() ? name_of(model.config.dtype) : dtype;
  add_ids(architecture, model, config);
  add_classes(model.config, config);
  add_came_with(architecture, model, config);

  CheckpointContent files;
  if (examples_of(model.config).of_images()) {
    const ImageFormat& format = model.config.data.image;
    add_image_size(format.size, config);
    files[kPreprocessorFile] =
        indented(their_preprocessor(format, came_with(model, kPreprocessorFile)));
  } else {
    const bool writes = model.config.model_type != ModelType::kEncoder;
    if (writes) {
      Json generation = generation_config(model, config);
      add_ends_of_talks(model, generation);
      files["generation_config.json"] = indented(generation);
    }
    for (auto& [file, bytes] : huggingface_tokenizer_files(model)) files[file] = std::move(bytes);
    if (model.config.task->can(kEmbedsTexts)) {
      for (auto& [file, bytes] : sentence_vector_files(model, dtype))
        files[file] = std::move(bytes);
    }
  }
  files[kConfigFile] = indented(config);
  std::vector<TensorToWrite> tensors = their_tensors(architecture, model, facts);
  for (TensorToWrite& tensor : tensors) {
    const bool whole = headless && tensor.name.starts_with(architecture.prefix);
    if (whole) tensor.name.erase(0, std::string_view(architecture.prefix).size());
  }
  store_as(dtype, tensors);
  files[kModelFile] = [tensors = std::move(tensors)](const ByteSink& sink) {
    write_safetensors(tensors, {{"format", "pt"}}, sink);
  };
  return files;
}

}  // namespace tapestry::interop
