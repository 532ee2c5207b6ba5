// Model: a trained run that answers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <tuple>

#include "apps/python/calls.h"
#include "apps/tasks/answers/trained_model.h"
#include "core/base/enumerators.h"

namespace tapestry::python {
namespace {

using Texts = std::vector<std::string>;
using Ids = std::vector<std::vector<int32_t>>;
using Probability = std::pair<std::string, double>;

std::optional<WeightFormat> format_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  std::string names;
  for (const WeightFormat format : kWeightFormats) {
    if (*name == name_of(format)) return format;
    names += concat(names.empty() ? "" : ", ", name_of(format));
  }
  fail(ErrorKind::kConfig, "[model] weights must be one of ", names, ", got '", *name, "'.");
}

// One thread at a time: others wait, without the GIL.
class Model {
 public:
  Model(const std::string& path, TrainedModel::Options options)
      : model_(path, std::move(options)) {}

  template <class F>
  auto call(F f) const {
    return without_gil([&] {
      const std::lock_guard lock(mutex_);
      return f(model_);
    });
  }
  const TrainedModel& trained() const { return model_; }

  const Tokenizer& tokenizer(const std::string& side) const {
    const TokenizerPair& both = model_.tokenizers();
    if (side != "source" && side != "target") {
      fail(ErrorKind::kConfig, "[tokenizer] side must be source or target, got '", side, "'.");
    }
    const Tokenizer* const one = (side == "source" ? both.source : both.target).get();
    if (one == nullptr) {
      fail(ErrorKind::kConfig, "[tokenizer] a model of images has none.");
    }
    return *one;
  }

 private:
  TrainedModel model_;
  mutable std::mutex mutex_;
};

std::unique_ptr<Model> load(const std::string& path, const std::string& device,
                            const std::optional<std::string>& weights, int64_t batch_size,
                            const std::string& source_language,
                            const std::string& target_language) {
  if (batch_size < 1) {
    fail(ErrorKind::kConfig, "[model] expected 1 <= batch_size, got ", batch_size, '.');
  }
  TrainedModel::Options options{.device = device, .batch_size = batch_size};
  options.weights.format = format_of(weights);
  std::vector<KeyOverride> languages;
  for (const auto& [key, value] : {std::pair("source_language", &source_language),
                                   std::pair("target_language", &target_language)}) {
    if (!value->empty()) languages.push_back({concat(key, " ="), key, *value});
  }
  options.languages = override_languages({}, languages);
  return without_gil([&] { return std::make_unique<Model>(path, options); });
}

Texts best_of(std::vector<std::vector<AnsweredText>> answers) {
  Texts texts;
  for (auto& list : answers) texts.push_back(list.empty() ? "" : std::move(list.front().text));
  return texts;
}

nb::object config_of(const Model& model) {
  return nb::module_::import_("json").attr("loads")(to_json(model.trained().config()));
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> embed(const Model& model, const Texts& texts) {
  auto* const vectors =
      new Tensor(model.call([&](const TrainedModel& trained) { return trained.embed(texts); }));
  const nb::capsule owner(vectors, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return {vectors->data<float>(),
          {static_cast<size_t>(vectors->shape()[0]), static_cast<size_t>(vectors->shape()[1])},
          owner};
}

std::vector<std::vector<Probability>> classify(const Model& model, const Texts& texts,
                                               int64_t top_k, double threshold,
                                               const std::optional<Texts>& text_pair) {
  if (top_k < 1) fail(ErrorKind::kConfig, "[classify] expected 1 <= top_k, got ", top_k, '.');
  const auto found = model.call([&](const TrainedModel& trained) {
    return trained.classify(texts, {.top_k = top_k, .threshold = threshold},
                            text_pair.value_or(Texts()));
  });
  std::vector<std::vector<Probability>> classes;
  for (const auto& of_text : found) {
    auto& list = classes.emplace_back();
    for (const auto& [label, probability] : of_text) list.emplace_back(label, probability);
  }
  return classes;
}

std::vector<std::vector<std::tuple<std::string, std::string, double>>> label_words(
    const Model& model, const Texts& texts) {
  std::vector<std::vector<std::tuple<std::string, std::string, double>>> all;
  for (const auto& [text, labels] :
       model.call([&](const TrainedModel& trained) { return trained.label_words(texts); })) {
    auto& list = all.emplace_back();
    for (size_t i = 0; i < labels.size(); ++i) {
      list.emplace_back(text.words[i], labels[i].label, labels[i].probability);
    }
  }
  return all;
}

std::vector<std::vector<std::vector<Probability>>> fill_mask(const Model& model, const Texts& lines,
                                                             int64_t top_k) {
  std::vector<std::vector<std::vector<Probability>>> all;
  for (const auto& masks :
       model.call([&](const TrainedModel& trained) { return trained.guess_words(lines, top_k); })) {
    auto& of_line = all.emplace_back();
    for (const auto& guesses : masks) {
      auto& of_mask = of_line.emplace_back();
      for (const auto& [word, probability] : guesses) of_mask.emplace_back(word, probability);
    }
  }
  return all;
}

std::vector<Score> score(const Model& model, const Texts& targets,
                         const std::optional<Texts>& sources) {
  return model.call([&](const TrainedModel& trained) {
    return sources ? trained.score(*sources, targets) : trained.score(targets);
  });
}

Ids encode(const Model& model, const Texts& texts, const std::string& side) {
  const Tokenizer& tokenizer = model.tokenizer(side);
  return without_gil([&] {
    Ids ids;
    for (const std::string& text : texts) ids.push_back(tokenizer.encode(text));
    return ids;
  });
}

Texts decode(const Model& model, const Ids& ids, const std::string& side) {
  const Tokenizer& tokenizer = model.tokenizer(side);
  for (const std::vector<int32_t>& text : ids) {
    for (const int32_t id : text) {
      if (id >= 0 && id < tokenizer.vocab_size()) continue;
      fail(ErrorKind::kData, "[tokenizer] expected ids in [0, ", tokenizer.vocab_size(), "), got ",
           id, '.');
    }
  }
  return without_gil([&] {
    Texts texts;
    for (const std::vector<int32_t>& text : ids) texts.push_back(tokenizer.decode(text));
    return texts;
  });
}

void bind_results(nb::module_& module) {
  nb::class_<AnsweredText>(module, "Answer", "One of the n best answers to a line.")
      .def_ro("text", &AnsweredText::text, "Of a continuation: without its prompt.")
      .def_ro("log_probability", &AnsweredText::log_probability,
              "Of its tokens and, if it came, the end.")
      .def_ro("score", &AnsweredText::score, "By which the n best compete.")
      .def_ro("finished", &AnsweredText::finished, "False: the length limit ended it.")
      .def("__repr__", [](const AnsweredText& answer) {
        return concat("Answer(text=", nb::repr(nb::cast(answer.text)).c_str(),
                      ", log_probability=", answer.log_probability, ", score=", answer.score,
                      ", finished=", answer.finished ? "True)" : "False)");
      });
  nb::class_<FoundAnswer>(module, "FoundAnswer", "An answer, cut out of a context.")
      .def_ro("text", &FoundAnswer::text, "Empty: the context has none.")
      .def_ro("start", &FoundAnswer::begin, "Of the context's characters, from 0.")
      .def_ro("end", &FoundAnswer::end, "The character behind it.")
      .def_ro("probability", &FoundAnswer::probability, "Among all spans that are allowed.")
      .def("__repr__", [](const FoundAnswer& answer) {
        return concat("FoundAnswer(text=", nb::repr(nb::cast(answer.text)).c_str(),
                      ", start=", answer.begin, ", end=", answer.end,
                      ", probability=", answer.probability, ')');
      });
  nb::class_<Score>(module, "Score", "The probability of a text under a model.")
      .def_ro("log_probability", &Score::log_probability,
              "Of all tokens, each given those before it and the source.")
      .def_ro("tokens", &Score::tokens, "Their number, with the end.")
      .def_ro("ids", &Score::ids, "The tokens.")
      .def_ro("token_log_probabilities", &Score::each, "The log-probability of each.")
      .def("__repr__", [](const Score& score) {
        return concat("Score(log_probability=", score.log_probability, ", tokens=", score.tokens,
                      ')');
      });
}

}  // namespace

void bind_models(nb::module_& module) {
  using nb::literals::operator""_a;
  bind_results(module);
  nb::class_<Model>(
      module, "Model",
      "A trained run that answers as the program's commands do, to the bit. Lists in, "
      "lists of the same length out. Methods may be called by several threads: they "
      "take turns, without the GIL. Ctrl-C ends them.")
      .def_static("load", &load, "path"_a, nb::kw_only(), "device"_a = "auto",
                  "weights"_a = nb::none(), "batch_size"_a = 64, "source_language"_a = "",
                  "target_language"_a = "",
                  "The model of a checkpoint or run folder.\n\n"
                  "device: auto, cpu, cuda or cuda:N. weights: the matrices in float32, bfloat16, "
                  "int8 or int4 (on a CPU). batch_size: the lines that a thread searches, or the "
                  "model reads, at once; results do not depend on it. Languages: of a model of "
                  "several.\n\n"
                  "Raises DataError for a folder that is damaged, ConfigError for a task that does "
                  "not answer.")
      .def_prop_ro(
          "task", [](const Model& model) { return model.trained().config().task->name; },
          "The task of its config: \"translation\", \"clm\", ...")
      .def_prop_ro("config", &config_of, "Its config, every key with its value.",
                   nb::sig("def config(self) -> dict"))
      .def(
          "translate",
          [](const Model& model, const Texts& lines, const nb::kwargs& keywords) {
            const SearchArguments search = search_arguments(keywords, 1);
            return model.call([&](const TrainedModel& trained) {
              return best_of(
                  trained.translate(lines, search.over(trained.search()), /*with_scores=*/false));
            });
          },
          "lines"_a, "search"_a,
          "The best translation of each line; \"\" of an empty one.\n\n"
          "search: keys of `generation` over those of the run's config: num_beams=4, "
          "length_penalty=0.6, ...; and seed. Raises ConfigError for a key or value that is wrong.")
      .def(
          "translate_n_best",
          [](const Model& model, const Texts& lines, int64_t n_best, const nb::kwargs& keywords) {
            const SearchArguments search = search_arguments(keywords, n_best);
            return model.call([&](const TrainedModel& trained) {
              return trained.translate(lines, search.over(trained.search()));
            });
          },
          "lines"_a, "n_best"_a, "search"_a,
          "The n best translations of each line, best first; none of an empty one. With do_sample "
          "n draws.")
      .def(
          "generate",
          [](const Model& model, const Texts& prompts, const Texts& stop,
             const nb::kwargs& keywords) {
            const SearchArguments search = search_arguments(keywords, 1);
            return model.call([&](const TrainedModel& trained) {
              return best_of(trained.generate(prompts, search.over(trained.search()), stop));
            });
          },
          "prompts"_a, nb::kw_only(), "stop"_a = Texts(), "search"_a,
          "What follows each prompt, without the prompt, up to one of the `stop` texts.\n\n"
          "search: keys of `generation`: do_sample=True, temperature=0.8, max_new_tokens=100, ...; "
          "and seed.")
      .def(
          "generate_n_best",
          [](const Model& model, const Texts& prompts, int64_t n_best, const Texts& stop,
             const nb::kwargs& keywords) {
            const SearchArguments search = search_arguments(keywords, n_best);
            return model.call([&](const TrainedModel& trained) {
              return trained.generate(prompts, search.over(trained.search()), stop);
            });
          },
          "prompts"_a, "n_best"_a, nb::kw_only(), "stop"_a = Texts(), "search"_a,
          "The n best continuations of each prompt, best first; with do_sample n draws.")
      .def("score", &score, "targets"_a, "sources"_a = nb::none(),
           "The probability of each text and its end; of a translation model: given its source.")
      .def("embed", &embed, "texts"_a,
           "The vectors of texts: an array (N, D) of float32. Raises DataError for an empty text.")
      .def("classify", &classify, "texts"_a, "top_k"_a = 1, "threshold"_a = 0.5,
           "text_pair"_a = nb::none(),
           "For each text, or path of an image, its top_k classes with their probabilities, best "
           "first; of a model that finds any number of classes those from the threshold on. None "
           "of an empty text. text_pair: the second text of each, for a model that reads two in a "
           "row.")
      .def(
          "rate",
          [](const Model& model, const Texts& texts, const std::optional<Texts>& text_pair) {
            return model.call([&](const TrainedModel& trained) {
              return trained.rate(texts, text_pair.value_or(Texts()));
            });
          },
          "texts"_a, "text_pair"_a = nb::none(),
          "The number that a model of text_regression gives each text; nan of an empty one.")
      .def(
          "answer",
          [](const Model& model, const Texts& questions, const Texts& contexts, int64_t n_best) {
            return model.call([&](const TrainedModel& trained) {
              return trained.answer(questions, contexts, n_best);
            });
          },
          "questions"_a, "contexts"_a, "n_best"_a = 1,
          "For each question the n best answers of a model of question_answering, cut out of the "
          "context beside it; none if one of both is empty.")
      .def(
          "predict",
          [](const Model& model, const std::vector<std::vector<double>>& x) {
            return model.call([&](const TrainedModel& trained) { return trained.predict(x); });
          },
          "x"_a,
          "What a model of regression predicts for each point, which has a number for each column "
          "of x: a list of its y, or of the share of each class.")
      .def("label_words", &label_words, "texts"_a,
           "For each text its words with their labels, and the probability of each.")
      .def("fill_mask", &fill_mask, "lines"_a, "top_k"_a = 5,
           "For each line and each <mask> in it the top_k words with their probabilities, best "
           "first. A denoising model restores lines instead: restore().")
      .def(
          "restore",
          [](const Model& model, const Texts& lines, const nb::kwargs& keywords) {
            const SearchArguments search = search_arguments(keywords, 1);
            return model.call([&](const TrainedModel& trained) {
              return trained.restore(lines, search.over(trained.search()));
            });
          },
          "lines"_a, "search"_a,
          "Lines with <mask> or <extra_id_0>, ... as a denoising model restores them.")
      .def("encode", &encode, "texts"_a, "side"_a = "source",
           "The token ids of each text, without those around it. side: source or target.")
      .def("decode", &decode, "ids"_a, "side"_a = "target", "The text of each list of token ids.")
      .def("__repr__", [](const Model& model) {
        return concat("<tapestry.Model of task ", model.trained().config().task->name, '>');
      });
}

}  // namespace tapestry::python
