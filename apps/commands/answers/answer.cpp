// tapestry answer: the span of a context that answers a question about it.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/question_answering.h"
#include "core/cpu/parallel.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct AnswerArguments : FilterArguments {
  int64_t n_best = 1;       ///< lines for each question, best first
  std::string detail = {};  ///< "" or "jsonl"
  bool jsonl = false;       ///< lines are JSON objects with context and question
};

Question parse_line(const std::string& line, bool jsonl, int64_t number) {
  const std::string place = concat("line ", number);
  if (jsonl) return question_of(parse_json_record(line, place));
  const size_t tab = line.find('\t');
  if (tab == std::string::npos) {
    fail(ErrorKind::kData, "[answer] ", place, " must be a context, a tab and a question.");
  }
  return {.id = "",
          .context = std::make_shared<const std::string>(line.substr(0, tab)),
          .question = line.substr(tab + 1),
          .answers = {},
          .place = place};
}

void print(const std::vector<FoundAnswer>& answers, const AnswerArguments& arguments,
           std::ostream& out) {
  if (arguments.detail == "jsonl") {
    Json list = Json::array();
    for (const FoundAnswer& answer : answers) {
      list.push_back({{"text", answer.text},
                      {"start", answer.begin},
                      {"end", answer.end},
                      {"probability", answer.probability}});
    }
    out << json_line(Json{{"answers", std::move(list)}}) << '\n';
    return;
  }
  for (const FoundAnswer& answer : answers) out << one_line(answer.text) << '\n';
  // Prints all requested answers of a line, even if there are fewer spans.
  for (auto i = static_cast<int64_t>(answers.size()); i < arguments.n_best; ++i) out << '\n';
}

// Answers consecutive lines, of which blank ones get an empty line.
class Answerer {
 public:
  Answerer(const SpanModel& model, const AnswerArguments& arguments, AttentionBook& book,
           LineFilter& filter)
      : model_(model), arguments_(arguments), book_(book), filter_(filter), out_(filter.out()) {}

  void answer(const std::vector<std::string>& lines, int64_t first) const {
    std::vector<Question> questions;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (is_blank(lines[i])) continue;
      const int64_t number = first + static_cast<int64_t>(i);
      try {
        filter_.takes_record(number, [&] {
          questions.push_back(parse_line(lines[i], arguments_.jsonl, number + 1));
        });
      } catch (const Error&) {
        if (i > 0) answer({lines.begin(), lines.begin() + static_cast<int64_t>(i)}, first);
        throw;  // the lines before it are good
      }
    }
    const QuestionCorpus corpus =
        encode_questions(std::move(questions), *model_.tokenizers.source,
                         question_options(model_.config), /*labelled=*/false);
    warn(corpus.counts);
    filter_.read(corpus.counts.unknown[0]);
    const auto found = find_answers(model_, corpus, arguments_.n_best);
    // Shows the first window of each question: most have no other.
    for (size_t w = 0; w < corpus.windows.size() && book_.wants(); ++w) {
      const bool further = w > 0 && corpus.windows[w].question == corpus.windows[w - 1].question;
      if (!further) book_.add(attention_page(model_, corpus, static_cast<int64_t>(w)));
    }
    size_t next = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string place = concat("line ", first + static_cast<int64_t>(i) + 1);
      const bool answered = next < found.size() && corpus.questions[next].place == place;
      print(answered ? found[next++] : std::vector<FoundAnswer>(), arguments_, out_);
    }
  }

 private:
  static void warn(const FilterCounts& counts) {
    if (counts.truncated > 0) {
      std::cerr << "warning: " << counts.truncated << " questions are cut to half of max_length\n";
    }
    if (counts.total_dropped() > 0) {
      std::cerr << "warning: " << counts.total_dropped()
                << " contexts or questions have no token\n";
    }
  }

  const SpanModel& model_;
  const AnswerArguments& arguments_;
  AttentionBook& book_;
  LineFilter& filter_;
  std::ostream& out_;
};

int run_answer(const AnswerArguments& arguments) {
  LineFilter filter("answer", arguments);
  set_num_threads(arguments.compute.threads);
  const auto model = SpanModel::load(arguments.model(), arguments.compute.device, "answer",
                                     kFindsAnswers, arguments.models.format);
  AttentionBook book(arguments.attention);
  const Answerer answerer(*model, arguments, book, filter);
  filter.run(arguments.batch_size, [&](const std::vector<std::string>& lines, int64_t first) {
    answerer.answer(lines, first);
  });
  book.write();
  filter.finish();
  return 0;
}

void add_answer(CLI::App& app, AnswerArguments& arguments) {
  add_model(app, arguments);
  add_format(app, arguments.models.format);
  app.add_flag("--jsonl", arguments.jsonl,
               "lines are JSON objects with the fields context and question");
  app.add_option("--n-best", arguments.n_best, "answers to each question, best first")
      ->check(number<int64_t>(at_least(1)))
      ->capture_default_str();
  add_input(app, arguments);
  add_output(app, arguments, "lines answered at a time");
  add_detail(app, arguments.detail, "jsonl: places and probabilities, one object a line");
  add_attention(app, arguments);
}

}  // namespace

extern const Command kAnswer(
    "answer", "The answer to each line \"context<TAB>question\" of standard input, cut out of it",
    add_answer, run_answer);

}  // namespace tapestry
