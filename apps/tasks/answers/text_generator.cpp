#include "apps/tasks/answers/text_generator.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/prompts/prompt_answering.h"
#include "data/corpora/empty_text.h"

namespace tapestry {
namespace {

// Where the first of the stop strings begins, or npos.
size_t find_stop(const std::string& text, const std::vector<std::string>& stop) {
  size_t first = std::string::npos;
  for (const std::string& word : stop) first = std::min(first, text.find(word));
  return first;
}

// The length of the part of a text that can no longer change. The rest may become a stop string, or
// is an incomplete character, which decodes to replacement characters (U+FFFD).
size_t settled(const std::string& text, const std::vector<std::string>& stop) {
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  size_t end = text.size();
  while (std::string_view(text).substr(0, end).ends_with(kReplacement)) end -= kReplacement.size();
  for (const std::string& word : stop) {
    for (size_t n = std::min(word.size(), text.size()); n > 0; --n) {
      if (text.compare(text.size() - n, n, word, 0, n) == 0) {
        end = std::min(end, text.size() - n);
        break;
      }
    }
  }
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;
  return end;
}

// Decodes prompt and continuation together and removes the prompt's text: a tokenizer may decode
// the first generated piece differently at the beginning of a text.
std::string continuation(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                         const std::vector<int32_t>& generated) {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), generated.begin(), generated.end());
  const std::string before = tokenizer.decode(prompt), whole = tokenizer.decode(all);
  return whole.compare(0, before.size(), before) == 0 ? whole.substr(before.size()) : whole;
}

}  // namespace

TextGenerator::TextGenerator(const TextModels& models, SearchOptions options,
                             std::vector<std::string> stop, std::shared_ptr<const Tokenizer> reader)
    : models_(models),
      options_(std::move(options)),
      n_best_(options_.n_best),
      stop_(std::move(stop)),
      reader_(std::move(reader)) {
  for (const std::string& word : stop_) {
    if (word.empty()) fail(ErrorKind::kConfig, "[generate] --stop must not be empty.");
  }
  options_.validate();
  widen_for_distinct_texts(options_);
}

// The tokens in front of a prompt.
std::vector<int32_t> TextGenerator::beginning_of(const std::vector<int32_t>& ids) const {
  if (!begins_with_eos(config())) return {};
  const SpecialIds& special = tokenizer().special();
  // As in training, where every example of prompts begins like a document.
  const ExampleKind& kind = examples_of(config());
  const bool document = ids.empty() || kind.prompted || kind.talks;
  return document ? special.beginning_of(ids) : special.prompt_of(ids);
}

bool TextGenerator::fits(const std::string& text, bool with_room) const {
  const std::vector<int32_t> ids = tokenizer().encode(text);
  const int64_t length = std::ssize(beginning_of(ids)) + std::ssize(ids);
  return length <= most_of_a_prompt() - (with_room ? room() : 0);
}

Prompt TextGenerator::prompt(const std::string& text, const std::string& place,
                             bool may_be_empty) const {
  Prompt prompt{.text = text};
  std::vector<int32_t> ids = tokenizer().encode(text);
  if (!may_be_empty && is_empty_text(text, ids)) return {.text = text, .blank = true};
  prompt.ids = beginning_of(ids);
  prompt.frame = std::ssize(prompt.ids);
  if (prompt.frame + std::ssize(ids) > most_of_a_prompt()) {
    cut_long_line(ids, std::max<int64_t>(1, most_of_a_prompt() - room() - prompt.frame), place,
                  Kept::kLast);
  }
  prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  if (prompt.ids.empty()) {
    fail(ErrorKind::kData,
         "[generate] the prompt is empty: a model of one long document needs one.");
  }
  return prompt;
}

SearchTask TextGenerator::task() const {
  SearchTask task;
  task.eos_id = tokenizer().special().eos;
  task.more_ends = tokenizer().special().more_ends;
  task.banned = tokenizer().special().banned();
  if (!begins_with_eos(config())) task.banned.push_back(task.eos_id);
  if (const auto mask = tokenizer().mask_id()) task.banned.push_back(*mask);
  task.force_eos = false;
  return task;
}

int64_t TextGenerator::limit(const Prompt& prompt) const {
  return generation_limit(std::ssize(prompt.ids), models_.positions(), models_.longest(), options_);
}

std::string TextGenerator::settled_text(const Prompt& prompt, const std::vector<int32_t>& generated,
                                        bool& ended) const {
  const std::string text = continuation(tokenizer(), prompt.ids, generated);
  const size_t stop = find_stop(text, stop_);
  ended = stop != std::string::npos;
  return text.substr(0, std::min(stop, settled(text, stop_)));
}

void TextGenerator::run(const std::vector<const Prompt*>& prompts, int64_t sequences_at_once,
                        const Hooks& hooks) const {
  SearchTask task = this->task();
  const Device device = models_.first().model.table.device();
  task.sentences = std::ssize(prompts);
  task.sentences_at_once = rows_of_a_search(sequences_at_once, device);
  task.log_probabilities = task.token_log_probabilities = hooks.token_log_probabilities;
  for (const Prompt* prompt : prompts) {
    task.prompts.push_back(prompt->ids);
    task.sequence_ids.push_back(prompt->number);
    task.max_lengths.push_back(limit(*prompt));
  }
  const GenerationHooks watch{[&](int64_t i, const std::vector<int32_t>& generated) {
    if (stop_.empty() && !hooks.grows) return false;
    const auto place = static_cast<size_t>(i);
    bool ended = false;
    const std::string text = settled_text(*prompts[place], generated, ended);
    if (hooks.grows) hooks.grows(place, text);
    return ended;
  }};
  search_together([&] { return models_.steps(); }, task, options_, watch,
                  [&](int64_t i, std::vector<Hypothesis> found) {
                    const auto place = static_cast<size_t>(i);
                    hooks.done(place,
                               best_texts(std::move(found), n_best_, [&](const Hypothesis& one) {
                                 return text_of(*prompts[place], one);
                               }));
                  },
                  device);
}

std::string TextGenerator::text_of(const Prompt& prompt, const Hypothesis& found) const {
  std::string text = continuation(tokenizer(), prompt.ids, found.tokens);
  text.resize(std::min(text.size(), find_stop(text, stop_)));
  return text;
}

// Beyond the positions of the training nothing is generated unless it is asked for.
int64_t TextGenerator::most_of_a_prompt() const {
  return options_.max_new_tokens > 0 ? models_.longest() : models_.positions();
}

// What a prompt that is cut leaves free for its continuation.
int64_t TextGenerator::room() const {
  const int64_t half = most_of_a_prompt() / 2;
  return options_.max_new_tokens > 0 ? std::min(options_.max_new_tokens, half) : half;
}

}  // namespace tapestry
