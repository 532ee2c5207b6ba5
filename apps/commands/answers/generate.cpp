// tapestry generate: what follows one prompt, or each line of the input.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/commands/answers/chat.h"
#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/answers/text_generator.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/prompts/prompt_answering.h"
#include "core/cpu/parallel.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

/// An answer is a line, in which line ends are written \\n. That to `prompt` appears on a terminal
/// as it is made.
struct GenerateArguments : FilterArguments {
  SearchArguments search = {};
  std::optional<std::string> prompt = {};  ///< unset: one prompt a line of the input
  int64_t samples = 1;                     ///< continuations of each prompt
  std::vector<std::string> stop = {};      ///< text that ends a continuation, and is left out
  std::string detail = {};                 ///< "" or "jsonl"
  bool jsonl = false;       ///< lines are JSON objects: for the prompt of the training, or talks
  bool chat = false;        ///< lines are what a user says, one after the other
  std::string system = {};  ///< the first message of a chat
};

// A continuation that a line asks for, or a blank line.
struct Request {
  Prompt prompt;
  std::string record = {};  ///< the line of --jsonl
  bool ends_line = true;    ///< no further sample follows
  bool done = false;
  std::vector<Hypothesis> results = {};
};

class Continuer {
 public:
  Continuer(const TextModels& models, const GenerateArguments& arguments, const ChatAnswers* chat,
            AttentionBook& book, LineFilter& filter)
      : models_(models),
        arguments_(arguments),
        chat_(chat),
        book_(book),
        filter_(filter),
        out_(filter.out()),
        options_(arguments.search.over(models.first().config.generation)),
        generator_(models, options_, with_end(arguments.stop, chat), reader_of(models, chat)),
        streams_(arguments.prompt && arguments.samples == 1 && options_.num_beams == 1 &&
                 options_.n_best == 1 && arguments.detail.empty() && arguments.output == "-" &&
                 isatty(STDOUT_FILENO) != 0) {}

  const TextGenerator& generator() const { return generator_; }

  // Of line `line`, from 0, or of the command line, whose prompt may be empty.
  Request request(const std::string& text, int64_t line) const {
    const bool of_command_line = arguments_.prompt.has_value();
    const std::string place = of_command_line ? "the prompt" : place_of_line(line + 1);
    if (const size_t bad = find_invalid_utf8(text); of_command_line && bad < text.size()) {
      fail(ErrorKind::kData, "[generate] --prompt is not UTF-8 at byte ", bad + 1, '.');
    }
    Request request{.prompt = generator_.prompt(text, place, of_command_line)};
    const std::span<const int32_t> ids = request.prompt.ids;
    filter_.read(ids.subspan(static_cast<size_t>(request.prompt.frame)), tokenizer(), line);
    return request;
  }

  // Prints the results in the order of the requests, each as soon as all before it are done.
  void answer(std::vector<Request>& requests) const {
    std::vector<Request*> asked;
    std::vector<const Prompt*> prompts;
    for (Request& request : requests) {
      request.done = request.prompt.blank;
      if (request.done) continue;
      asked.push_back(&request);
      prompts.push_back(&request.prompt);
    }
    auto next = requests.begin();
    size_t shown = 0;
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
    TextGenerator::Hooks hooks;
    hooks.token_log_probabilities = arguments_.detail == "jsonl";
    hooks.done = [&](size_t i, std::vector<Hypothesis> found) {
      asked[i]->results = std::move(found);
      asked[i]->done = true;
      print_those_done();
    };
    if (streams_) {
      out_ << requests[0].prompt.text << std::flush;
      hooks.grows = [&](size_t, const std::string& text) {
        if (text.size() <= shown) return;
        out_ << text.substr(shown) << std::flush;
        shown = text.size();
      };
    }
    generator_.run(prompts, arguments_.batch_size, hooks);
  }

 private:
  static std::vector<std::string> with_end(std::vector<std::string> stop, const ChatAnswers* chat) {
    if (chat != nullptr && !chat->end.empty()) stop.push_back(chat->end);
    return stop;
  }
  // A model that was trained on talks reads all texts as those.
  static std::shared_ptr<const Tokenizer> reader_of(const TextModels& models,
                                                    const ChatAnswers* chat) {
    if (chat != nullptr) return chat->reader;
    return examples_of(models.first().config).talks ? chat_answers(models).reader : nullptr;
  }
  const Tokenizer& tokenizer() const { return models_.tokenizer(); }
  std::string text_of(const Request& request, const Hypothesis& result) const {
    return generator_.text_of(request.prompt, result);
  }

  // The attention in a prompt and its continuation, as much as the models can read at once.
  AttentionPage page_of(const Request& request, const Hypothesis& result) const {
    std::vector<int32_t> ids = request.prompt.ids;
    ids.insert(ids.end(), result.tokens.begin(), result.tokens.end());
    const auto longest = static_cast<size_t>(models_.longest());
    if (ids.size() > longest) ids.resize(longest);
    return attention_page(models_.trunks(), tokenizer(), ids);
  }

  void print(const Request& request, size_t shown) const {
    const std::string& prompt = request.prompt.text;
    if (!request.prompt.blank && book_.wants()) {
      const Hypothesis& best = request.results.at(0);
      book_.add(page_of(request, best), prompt + text_of(request, best));
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
      } else if (chat_ != nullptr && !request.record.empty()) {
        out_ << chat_->answered(request.record, text) << '\n';
      } else if (streams_) {
        out_ << text.substr(std::min(shown, text.size())) << '\n';
      } else {
        const std::string whole = arguments_.jsonl ? std::string(strip(text)) : prompt + text;
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
    Json line = {{"prompt", prompt}, {"continuations", std::move(list)}};
    if (!request.record.empty()) line["record"] = Json::parse(request.record);
    out_ << json_line(line) << '\n';
  }

  const TextModels& models_;
  const GenerateArguments& arguments_;
  const ChatAnswers* chat_;  // null: lines are no talks
  AttentionBook& book_;
  LineFilter& filter_;
  std::ostream& out_;
  SearchOptions options_;
  TextGenerator generator_;
  bool streams_;
};

// The texts of lines as prompts.
class PromptsOfLines {
 public:
  PromptsOfLines(const GenerateArguments& arguments, const TextModels& models,
                 const ChatAnswers* chat, LineFilter& filter)
      : arguments_(arguments), chat_(chat), filter_(filter) {
    if (!arguments.jsonl || chat != nullptr) return;
    template_ = prompt_template(models.first().config, "generate --jsonl");
  }

  // The prompt of a line, by its number from 0; "" for a blank one.
  std::string operator()(const std::string& line, int64_t number) const {
    if (!arguments_.prompt && is_blank(line)) return "";
    if (!arguments_.jsonl) return line;
    std::string filled;
    filter_.takes_record(number, [&] {
      const std::string place = place_of_line(number + 1);
      filled = chat_ != nullptr ? chat_->prompt(line, place)
                                : template_.fill(parse_json_record(line, place));
    });
    return filled;
  }

 private:
  const GenerateArguments& arguments_;
  const ChatAnswers* chat_;
  LineFilter& filter_;
  Template template_;
};

void answer_lines(const GenerateArguments& arguments, const Continuer& continuer,
                  const PromptsOfLines& prompt_of, LineFilter& filter) {
  // As many requests as a window has lines.
  const int64_t window = window_of(arguments.batch_size);
  std::vector<Request> requests;
  const auto flush = [&] {
    std::vector<Request> now;
    now.swap(requests);
    if (!now.empty()) continuer.answer(now);
  };
  const auto add = [&](const std::string& text, int64_t line) {
    Request of_line = continuer.request(prompt_of(text, line), line);
    if (arguments.jsonl && !of_line.prompt.blank) of_line.record = text;
    for (int64_t s = 0; s < arguments.samples; ++s) {
      Request& request = requests.emplace_back(of_line);
      request.prompt.number = line * arguments.samples + s;
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
}

int run_generate(const GenerateArguments& arguments) {
  arguments.search.validate();
  LineFilter filter("generate", arguments);
  set_num_threads(arguments.compute.threads);
  const TextModels models(arguments.models, arguments.compute.device, "generate", kContinuesText);
  if (models.reads_prefixes() && !arguments.attention.empty()) {
    fail(ErrorKind::kConfig, "[generate] --attention does not know models with prefix_lm.");
  }
  if (arguments.samples > 1 && !arguments.search.over(models.first().config.generation).do_sample) {
    fail(ErrorKind::kConfig, "[generate] --samples ", arguments.samples,
         " would be the same text each time without draws: give --do-sample, or --n-best for the "
         "best of a beam search.");
  }
  std::optional<ChatAnswers> chat_way;
  const bool prompted = examples_of(models.first().config).prompted;
  if (arguments.chat || (arguments.jsonl && !prompted && has_chat(models))) {
    chat_way = chat_answers(models);
  }
  const ChatAnswers* const way = chat_way ? &*chat_way : nullptr;
  AttentionBook book(arguments.attention);
  const Continuer continuer(models, arguments, way, book, filter);
  if (arguments.chat) {
    const bool asks = isatty(STDIN_FILENO) != 0;
    chat(continuer.generator(), *way, arguments.system, std::cin, filter.out(),
         asks ? &std::cerr : nullptr);
  } else {
    const PromptsOfLines prompt_of(arguments, models, way, filter);
    answer_lines(arguments, continuer, prompt_of, filter);
  }
  book.write();
  filter.finish();
  return 0;
}

void add_generate(CLI::App& app, GenerateArguments& arguments) {
  add_models(app, arguments);
  auto* prompt =
      app.add_option("--prompt", arguments.prompt, "text to continue, instead of standard input");
  auto* jsonl = app.add_flag("--jsonl", arguments.jsonl,
                             "lines are JSON objects: answers the prompt that the training made of "
                             "such records, or adds an answer to their messages")
                    ->excludes(prompt);
  auto* chat = app.add_flag("--chat", arguments.chat,
                            "talks with a model that has a chat template: each line is what the "
                            "user says next, /reset begins a new talk")
                   ->excludes(prompt)
                   ->excludes(jsonl);
  app.add_option("--system", arguments.system, "the first message of the talk")->needs(chat);
  app.add_option("--samples", arguments.samples, "continuations of each prompt")
      ->check(number<int64_t>(at_least(1)))
      ->capture_default_str();
  add_search(app, arguments.search,
             {"max_length_ratio", "mbr_samples", "mbr_utility", "shortlist", "shortlist_size",
              "source_language", "target_language"});
  app.add_option("--stop", arguments.stop, "text that ends a continuation; may be repeated");
  add_input(app, arguments)->excludes(prompt);
  add_output(app, arguments,
             "sequences that are continued at a time; others join as soon as some are done");
  add_detail(app, arguments.detail, "jsonl: scores and tokens, one object a line");
  add_attention(app, arguments);
  for (const char* const of_lines : {"--input", "--ill-formed", "--batch-size", "--samples",
                                     "--n-best", "--detail", "--attention"}) {
    chat->excludes(app.get_option(of_lines));
  }
}

}  // namespace

extern const Command kGenerate(
    "generate", "Continue a prompt, or each line of standard input, with a causal language model",
    add_generate, run_generate);

}  // namespace tapestry
