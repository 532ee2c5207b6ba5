#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/commands/attention_page.h"
#include "apps/commands/filter.h"
#include "apps/commands/line_filter.h"
#include "apps/tasks/language_modelling.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/prompt_answering.h"
#include "core/parallel.h"
#include "data/empty_text.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// The beginning of the first stop string, or npos.
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

// A continuation that a line asks for, or a blank line.
struct Request {
  std::string text = {};
  std::vector<int32_t> prompt = {};  ///< with the eos in front, if the model has one
  int64_t number = 0;                ///< in the whole input: sampling draws by it
  bool blank = false;                ///< nothing is asked
  bool ends_line = true;             ///< no further sample follows
  bool done = false;
  std::vector<Hypothesis> results = {};
};

class Generator {
 public:
  Generator(const TextModels& models, const GenerateArguments& arguments, AttentionBook& book,
            LineFilter& filter)
      : models_(models),
        arguments_(arguments),
        book_(book),
        filter_(filter),
        out_(filter.out()),
        options_(search_options(config().generation, arguments.search)),
        streams_(arguments.prompt && arguments.samples == 1 && options_.num_beams == 1 &&
                 options_.n_best == 1 && arguments.detail.empty() &&
                 arguments.files.output == "-" && isatty(STDOUT_FILENO) != 0) {
    widen_for_distinct_texts(options_);
  }

  // A request from line `line`, from 0, or from the command line.
  Request request(const std::string& text, int64_t line) const {
    const std::string place = arguments_.prompt ? "the prompt" : place_of_line(line + 1);
    Request request{.text = text};
    const SpecialIds& special = tokenizer().special();
    std::vector<int32_t> ids = tokenizer().encode(text);
    // A prompt of the command line may be empty: then a text is written from its beginning.
    if (!arguments_.prompt && is_empty_text(text, ids)) return {.text = text, .blank = true};
    filter_.read(ids, tokenizer(), line);
    if (begins_with_eos(config())) {
      // As in training, every example of prompts begins like a document.
      const bool document = ids.empty() || reads_prompts(config());
      request.prompt = document ? special.beginning_of(ids) : special.prompt_of(ids);
    }
    const int64_t begin = std::ssize(request.prompt);
    if (begin + std::ssize(ids) > most_of_a_prompt()) {
      cut_long_line(ids, std::max<int64_t>(1, most_of_a_prompt() - room() - begin), place,
                    Kept::kLast);
    }
    request.prompt.insert(request.prompt.end(), ids.begin(), ids.end());
    if (request.prompt.empty()) {
      fail(ErrorKind::kData,
           "[generate] the prompt is empty: a model of one long document needs one.");
    }
    return request;
  }

  // Prints the results in the order of the requests, each as soon as all before it are done.
  void answer(std::vector<Request>& requests) const {
    SearchTask task;
    const Device device = models_.first().model.table.device();
    task.sentences_at_once = rows_of_a_search(arguments_.files.batch_size, device);
    task.eos_id = tokenizer().special().eos;
    task.more_ends = tokenizer().special().more_ends;
    task.banned = tokenizer().special().banned();
    if (!begins_with_eos(config())) task.banned.push_back(task.eos_id);
    if (const auto mask = tokenizer().mask_id()) task.banned.push_back(*mask);
    task.force_eos = false;
    std::vector<Request*> asked;
    for (Request& request : requests) {
      request.done = request.blank;
      if (request.blank) continue;
      asked.push_back(&request);
      task.prompts.push_back(request.prompt);
      task.sequence_ids.push_back(request.number);
      task.max_lengths.push_back(limit_after(request));
    }
    task.sentences = std::ssize(asked);
    task.log_probabilities = task.token_log_probabilities = arguments_.detail == "jsonl";
    size_t shown = 0;
    if (streams_) out_ << requests[0].text << std::flush;
    const GenerationHooks hooks{[&](int64_t i, const std::vector<int32_t>& generated) {
      if (arguments_.stop.empty() && !streams_) return false;
      const std::string text =
          continuation(tokenizer(), asked[static_cast<size_t>(i)]->prompt, generated);
      const size_t stop = find_stop(text, arguments_.stop);
      if (streams_) {
        const size_t end = std::min(stop, settled(text, arguments_.stop));
        if (end > shown) {
          out_ << text.substr(shown, end - shown) << std::flush;
          shown = end;
        }
      }
      return stop != std::string::npos;
    }};
    auto next = requests.begin();
    const auto print_those_done = [&] {
      int64_t lines = 0;
      for (; next != requests.end() && next->done; ++next) {
        print(*next, shown);
        next->results = {};
        if (next->ends_line) ++lines;
      }
      if (lines > 0) filter_.answered(lines);
    };
    print_those_done();  // blank ones in front
    search_together([&] { return models_.steps(); }, task, options_, hooks,
                    [&](int64_t i, std::vector<Hypothesis> found) {
                      Request& request = *asked[static_cast<size_t>(i)];
                      request.results =
                          best_texts(std::move(found), arguments_.search.n_best,
                                     [&](const Hypothesis& one) { return text_of(request, one); });
                      request.done = true;
                      print_those_done();
                    },
                    device);
  }

 private:
  const Config& config() const { return models_.first().config; }
  const Tokenizer& tokenizer() const { return models_.tokenizer(); }

  // The continuation up to its stop string.
  std::string text_of(const Request& request, const Hypothesis& result) const {
    std::string text = continuation(tokenizer(), request.prompt, result.tokens);
    text.resize(std::min(text.size(), find_stop(text, arguments_.stop)));
    return text;
  }

  // The attention in a prompt and its continuation, as much as the models can read at once.
  AttentionPage page_of(const Request& request, const Hypothesis& result) const {
    std::vector<int32_t> ids = request.prompt;
    ids.insert(ids.end(), result.tokens.begin(), result.tokens.end());
    const auto longest = static_cast<size_t>(models_.longest());
    if (ids.size() > longest) ids.resize(longest);
    return attention_page(models_.trunks(), tokenizer(), ids);
  }

  // Beyond the positions of the training nothing is generated unless it is asked for.
  int64_t most_of_a_prompt() const {
    return options_.max_new_tokens > 0 ? models_.longest() : models_.positions();
  }
  // Room for the continuation when the prompt is cut.
  int64_t room() const {
    const int64_t half = most_of_a_prompt() / 2;
    return options_.max_new_tokens > 0 ? std::min(options_.max_new_tokens, half) : half;
  }
  int64_t limit_after(const Request& request) const {
    return generation_limit(std::ssize(request.prompt), models_.positions(), models_.longest(),
                            options_);
  }

  void print(const Request& request, size_t shown) const {
    if (!request.blank && book_.wants()) {
      const Hypothesis& best = request.results.at(0);
      book_.add(page_of(request, best), request.text + text_of(request, best));
    }
    Json list = Json::array();
    for (const Hypothesis& result : request.results) {
      const std::string text = text_of(request, result);
      if (arguments_.detail == "jsonl") {
        list.push_back({{"text", text},
                        {"log_probability", result.log_probability},
                        {"score", result.score},
                        {"finished", result.has_eos}});
        list.back().update(token_details(result, tokenizer()));
      } else if (streams_) {
        out_ << text.substr(std::min(shown, text.size())) << '\n';
      } else {
        const std::string whole = arguments_.jsonl ? std::string(strip(text)) : request.text + text;
        out_ << (arguments_.prompt ? whole : one_line(whole)) << '\n';
      }
    }
    if (arguments_.detail != "jsonl") {
      // Prints the same number of lines for each, also for a blank one.
      for (int64_t i = std::ssize(request.results); i < arguments_.search.n_best; ++i) {
        out_ << '\n';
      }
      return;
    }
    out_ << Json{{"prompt", request.text}, {"continuations", std::move(list)}}.dump(
                -1, ' ', false, Json::error_handler_t::replace)
         << '\n';
  }

  const TextModels& models_;
  const GenerateArguments& arguments_;
  AttentionBook& book_;
  LineFilter& filter_;
  std::ostream& out_;
  SearchOptions options_;
  bool streams_;
};

}  // namespace

int run_generate(const GenerateArguments& arguments) {
  LineFilter filter("generate", arguments.files);
  set_num_threads(arguments.compute.threads);
  const TextModels models(arguments.models, arguments.compute.device, "generate", kContinuesText);
  for (const std::string& stop : arguments.stop) {
    if (stop.empty()) fail(ErrorKind::kConfig, "[generate] --stop must not be empty.");
  }
  if (models.reads_prefixes() && !arguments.attention.empty()) {
    fail(ErrorKind::kConfig, "[generate] --attention does not know models with prefix_lm.");
  }
  AttentionBook book(arguments.attention);
  const Generator generator(models, arguments, book, filter);
  const Template prompt =
      arguments.jsonl ? prompt_template(models.first().config, "generate --jsonl") : Template();
  // The prompt of a line, by its number from 0; "" for a blank one.
  const auto prompt_of = [&](const std::string& line, int64_t number) {
    if (!arguments.prompt && is_blank(line)) return std::string();
    if (!arguments.jsonl) return line;
    std::string filled;
    filter.takes_record(
        number, [&] { filled = prompt.fill(parse_json_record(line, place_of_line(number + 1))); });
    return filled;
  };
  // As many requests as a window has lines.
  const int64_t window = window_of(arguments.files.batch_size);
  std::vector<Request> requests;
  const auto flush = [&] {
    std::vector<Request> now;
    now.swap(requests);
    if (!now.empty()) generator.answer(now);
  };
  const auto add = [&](const std::string& text, int64_t line) {
    const Request of_line = generator.request(prompt_of(text, line), line);
    for (int64_t s = 0; s < arguments.samples; ++s) {
      Request& request = requests.emplace_back(of_line);
      request.number = line * arguments.samples + s;
      request.ends_line = s + 1 == arguments.samples;
      if (std::ssize(requests) >= window) flush();
    }
  };
  const auto answer = [&](const std::vector<std::string>& lines, int64_t first) {
    for (const std::string& line : lines) {
      try {
        add(line, first++);
      } catch (const Error&) {
        flush();  // the lines before it are good
        throw;
      }
    }
    flush();
  };
  if (arguments.prompt) {
    answer({*arguments.prompt}, 0);
  } else {
    filter.run(window, answer);
  }
  book.write();
  filter.finish();
  return 0;
}

}  // namespace tapestry
