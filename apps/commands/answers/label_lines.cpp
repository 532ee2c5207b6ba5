#include "apps/commands/answers/label_lines.h"

#include <nlohmann/json.hpp>

#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/classes/token_classification.h"
#include "core/base/text.h"
#include "data/files/utf8.h"
#include "data/scores/entity_scores.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

std::string slashed(const TextInWords& line, const std::vector<WordLabel>& labels) {
  std::vector<std::string> words;
  for (size_t i = 0; i < line.words.size(); ++i) {
    words.push_back(concat(one_line(line.words[i]), '/', labels[i].label));
  }
  return join(words, " ");
}

Json entities_in(const TextInWords& line, const std::vector<WordLabel>& labels) {
  std::vector<std::string_view> tags;
  for (const WordLabel& label : labels) tags.emplace_back(label.label);
  Json entities = Json::array();
  for (const Entity& entity : entities_of(tags)) {
    const auto first = static_cast<size_t>(entity.first), last = static_cast<size_t>(entity.last);
    const size_t begin = line.begins[first], end = line.begins[last] + line.words[last].size();
    const std::string text = line.text.substr(begin, end - begin);
    const int64_t start = count_code_points(std::string_view(line.text).substr(0, begin));
    double sum = 0;
    for (size_t i = first; i <= last; ++i) sum += labels[i].probability;
    entities.push_back({{"type", entity.type},
                        {"text", text},
                        {"start", start},
                        {"end", start + count_code_points(text)},
                        {"probability", sum / static_cast<double>(last - first + 1)}});
  }
  return entities;
}

std::string detailed(const TextInWords& line, const std::vector<WordLabel>& labels) {
  Json names = Json::array(), probabilities = Json::array();
  for (const WordLabel& label : labels) {
    names.push_back(label.label);
    probabilities.push_back(label.probability);
  }
  return json_line(Json{{"words", line.words},
                        {"labels", std::move(names)},
                        {"probabilities", std::move(probabilities)},
                        {"entities", entities_in(line, labels)}});
}

}  // namespace

int label_lines(ModelFiles files, const FilterArguments& arguments, bool details,
                LineFilter& filter) {
  const auto model = TokenClassifierModel::load(std::move(files), arguments.compute.device,
                                                "classify", kLabelsWords, arguments.models.format);
  model->config.training.eval_batch_size = arguments.batch_size;
  AttentionBook book(arguments.attention);
  const Tokenizer& tokenizer = *model->tokenizers.source;
  filter.run(arguments.batch_size, [&](const std::vector<std::string>& texts, int64_t number) {
    std::vector<TextInWords> lines;
    std::vector<std::vector<std::string>> sentences;
    for (const std::string& text : texts) {
      lines.push_back(in_words(text));
      if (!lines.back().words.empty()) sentences.push_back(lines.back().words);
    }
    const TaggedCorpus corpus =
        encode_words(sentences, tokenizer, model->config.data.corpus.max_length);
    const auto found = label_words(*model, corpus);
    size_t next = 0;
    for (size_t i = 0; i < lines.size(); ++i, ++number) {
      if (!lines[i].words.empty()) {
        const auto ids = corpus.tokens[static_cast<int64_t>(next)];
        filter.read(ids, tokenizer, number);
        if (book.wants() && !ids.empty()) {
          book.add(attention_page({&model->model.trunk}, tokenizer, {ids.begin(), ids.end()}),
                   lines[i].text);
        }
        const std::vector<WordLabel>& labels = found[next++];
        filter.out() << (details ? detailed(lines[i], labels) : slashed(lines[i], labels));
      }
      filter.out() << '\n';
    }
  });
  book.write();
  filter.finish();
  return 0;
}

}  // namespace tapestry
