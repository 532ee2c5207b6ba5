// /v1/completions and /v1/chat/completions, as OpenAI's clients call them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/commands/serve/continuation.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/token_scores.h"
#include "apps/tasks/prompts/prompt_answering.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

std::string fresh_id(const char* kind) {
  static std::atomic<int64_t> number{0};
  return fmt::format("{}-{:x}-{}", kind, unix_seconds(), ++number);
}

// A request with its continuations, and how its answers are written.
struct Answering {
  std::unique_ptr<Service::Admitted> admitted;
  std::unique_ptr<Continuations> continuations;
  std::string id, object, model;
  int64_t created = unix_seconds();
  /// A choice of the whole answer.
  std::function<Json(size_t i, const Choice& choice)> whole;
  /// A choice of a part of it: of its text, or (no text) of its end.
  std::function<Json(size_t i, const std::string* text, const char* finish_reason)> part;

  Json frame(const std::string& kind, Json choices) const {
    return {{"id", id},
            {"object", kind},
            {"created", created},
            {"model", model},
            {"choices", std::move(choices)}};
  }
  Json usage(int64_t tokens) const {
    const int64_t read = continuations->prompt_tokens();
    return {
        {"prompt_tokens", read}, {"completion_tokens", tokens}, {"total_tokens", read + tokens}};
  }
};

Reply whole_reply(const Answering& answering) {
  std::map<size_t, Json> choices;
  int64_t tokens = 0;
  answering.continuations->run({}, [&](size_t i, const Choice& choice) {
    choices[i] = answering.whole(i, choice);
    tokens += std::ssize(choice.found.tokens);
  });
  Json list = Json::array();
  for (auto& [i, choice] : choices) list.push_back(std::move(choice));
  Json json = answering.frame(answering.object, std::move(list));
  json["usage"] = answering.usage(tokens);
  return json_reply(json);
}

std::string event_of(const Json& json) { return concat("data: ", json_text(json), "\n\n"); }

Reply streamed_reply(std::shared_ptr<Answering> answering, const Call& call, const char* path) {
  const Json options = call.has("stream_options") ? call.body.at("stream_options") : Json::object();
  const auto usage = options.find("include_usage");
  const bool with_usage = usage != options.end() && *usage == true;
  Reply reply{.type = "text/event-stream"};
  reply.stream = [answering, with_usage, path](const Reply::Write& write) {
    const std::string kind =
        answering->object == "chat.completion" ? "chat.completion.chunk" : answering->object;
    struct Gone {};
    const auto send = [&](const std::string& text) {
      if (!write(text)) throw Gone();
    };
    const auto send_part = [&](size_t i, const std::string* text, const char* reason) {
      send(event_of(answering->frame(kind, Json::array({answering->part(i, text, reason)}))));
    };
    int64_t tokens = 0;
    try {
      answering->continuations->run(
          [&](size_t i, const std::string& text) { send_part(i, &text, nullptr); },
          [&](size_t i, const Choice& choice) {
            tokens += std::ssize(choice.found.tokens);
            send_part(i, nullptr, choice.finish_reason);
          });
      if (with_usage) {
        Json last = answering->frame(kind, Json::array());
        last["usage"] = answering->usage(tokens);
        send(event_of(last));
      }
      send("data: [DONE]\n\n");
    } catch (const Gone&) {
    } catch (const HttpError& error) {  // the status is sent already
      write(event_of(error_json(path, error.status(), error.what())));
    } catch (const std::exception& error) {
      write(event_of(error_json(path, 500, error.what())));
    }
    answering->continuations.reset();  // nothing is searched for a reader who is gone
    answering->admitted.reset();
  };
  return reply;
}

// The tokens of a prompt that a client gives as such.
std::vector<int32_t> given_tokens(const Json& list, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (const Json& value : list) {
    const auto id = value.get<int64_t>();
    if (id < 0 || id >= vocabulary) {
      refuse(400, "a token of the prompt must be in [0, ", vocabulary, "), got ", id, '.');
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

struct ReadPrompt {
  std::vector<int32_t> ids;
  int64_t frame = 0;  // of them, which the text has not
};

ReadPrompt read_prompt(const TextGenerator& generator, const std::string& text) {
  if (!generator.fits(text, /*with_room=*/false)) {
    refuse(400, "the prompt is longer than the model can read.");
  }
  const Prompt prompt = generator.prompt(text, "the prompt", /*may_be_empty=*/true);
  return {prompt.ids, prompt.frame};
}

std::vector<ReadPrompt> read_prompts(const Json& given, const TextGenerator& generator,
                                     const Tokenizer& tokenizer) {
  const auto tokens = [&](const Json& list) {
    return ReadPrompt{given_tokens(list, tokenizer.vocab_size())};
  };
  if (given.is_string()) return {read_prompt(generator, given.get<std::string>())};
  if (given.at(0).is_number()) return {tokens(given)};
  std::vector<ReadPrompt> prompts;
  for (const Json& one : given) {
    prompts.push_back(one.is_string() ? read_prompt(generator, one.get<std::string>())
                                      : tokens(one));
  }
  return prompts;
}

// The log-probabilities of a choice as OpenAI lists them; of generated tokens only that of the
// chosen one is known.
class LogProbabilities {
 public:
  explicit LogProbabilities(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add_prompt(const ReadPrompt& prompt, const TokenScores& scores) {
    for (size_t i = static_cast<size_t>(prompt.frame); i < prompt.ids.size(); ++i) {
      if (i == 0) {
        add(prompt.ids[0], nullptr, nullptr);
        continue;
      }
      Json top = {{tokenizer_.piece(scores.best[i - 1]), scores.best_each[i - 1]}};
      top[tokenizer_.piece(prompt.ids[i])] = scores.each[i - 1];
      add(prompt.ids[i], scores.each[i - 1], std::move(top));
    }
  }
  void add_generated(const Hypothesis& found) {
    const std::vector<double>& each = found.token_log_probabilities;
    for (size_t i = 0; i < each.size(); ++i) {
      const bool ends = i >= found.tokens.size();
      const int32_t token = ends ? tokenizer_.special().eos : found.tokens[i];
      add(token, each[i], {{tokenizer_.piece(token), each[i]}});
    }
  }
  Json json() const {
    return {{"tokens", tokens_}, {"token_logprobs", each_}, {"top_logprobs", top_}};
  }

 private:
  void add(int32_t token, Json value, Json top) {
    tokens_.push_back(tokenizer_.piece(token));
    each_.push_back(std::move(value));
    top_.push_back(std::move(top));
  }

  const Tokenizer& tokenizer_;
  Json tokens_ = Json::array(), each_ = Json::array(), top_ = Json::array();
};

// Writes the choices of /v1/completions.
struct CompletionWriter {
  const Tokenizer& tokenizer;
  std::vector<ReadPrompt> prompts;
  std::vector<TokenScores> scores = {};  // of the prompts; none: they are not asked for
  size_t n = 1;
  bool generates = true, echo = false, logprobs = false;

  Json operator()(size_t i, const Choice& choice) const {
    const ReadPrompt& prompt = prompts[i / n];
    std::string text = generates ? choice.text : "";
    if (echo) {
      const std::vector<int32_t> own(prompt.ids.begin() + prompt.frame, prompt.ids.end());
      text = tokenizer.decode(own) + text;
    }
    LogProbabilities listed(tokenizer);
    if (!scores.empty()) listed.add_prompt(prompt, scores[i / n]);
    if (logprobs && generates) listed.add_generated(choice.found);
    return {{"index", i},
            {"text", text},
            {"logprobs", logprobs ? listed.json() : Json()},
            {"finish_reason", choice.finish_reason}};
  }
  static Json part(size_t i, const std::string* text, const char* reason) {
    return {{"index", i},
            {"text", text != nullptr ? *text : ""},
            {"logprobs", nullptr},
            {"finish_reason", reason != nullptr ? Json(reason) : Json()}};
  }
};

void check_logprobs(const Call& call, const Wanted& wanted) {
  const int64_t most = call.integer("logprobs", 0);
  if (most < 0 || most > 1) refuse(400, "the field 'logprobs' must be 0 or 1, got ", most, '.');
  if (wanted.stream && (call.is_true("echo") || call.has("logprobs"))) {
    refuse(400, "a stream has neither 'echo' nor 'logprobs'.");
  }
}

Reply answer_completions(const Service& service, const Call& call) {
  constexpr int64_t kUsualTokens = 16;  // OpenAI's
  ServedModel& model = service.model_for(call, kContinuesText);
  const TextModels& texts = model.texts();
  const Wanted wanted(service, model, call, kUsualTokens);
  check_logprobs(call, wanted);
  const bool of_talks = examples_of(model.config()).talks && model.talks();
  const auto reader = of_talks ? model.chat().reader : nullptr;
  const auto generator =
      std::make_shared<const TextGenerator>(texts, wanted.options, wanted.stop, reader);
  const Tokenizer& tokenizer = reader ? *reader : texts.tokenizer();
  CompletionWriter writer{.tokenizer = tokenizer,
                          .prompts = read_prompts(call.body.at("prompt"), *generator, tokenizer),
                          .n = static_cast<size_t>(wanted.n),
                          .generates = wanted.most_tokens > 0,
                          .echo = call.is_true("echo"),
                          .logprobs = call.has("logprobs")};
  std::vector<std::vector<int32_t>> ids;
  for (const ReadPrompt& prompt : writer.prompts) {
    if (prompt.ids.empty()) refuse(400, "a prompt must not be empty.");
    ids.push_back(prompt.ids);
  }
  auto answering = std::make_shared<Answering>();
  answering->admitted = std::make_unique<Service::Admitted>(service, std::ssize(ids) * wanted.n);
  if (writer.echo && writer.logprobs) {
    for (const auto& prompt : ids) writer.scores.push_back(token_scores(model, prompt));
  }
  answering->id = fresh_id("cmpl");
  answering->object = "text_completion";
  answering->model = model.name();
  answering->whole = writer;
  answering->part = CompletionWriter::part;
  answering->continuations =
      std::make_unique<Continuations>(model, generator, std::move(ids), wanted, call.end);
  if (wanted.stream) return streamed_reply(answering, call, "/v1/completions");
  return whole_reply(*answering);
}

// The messages as the chat template reads them: a content of parts is their texts.
Json messages_of(const Json& given) {
  Json messages = given;
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    std::string text;
    for (const Json& part : *content) {
      if (!part.is_object() || part.value("type", "") != "text" || !part.contains("text") ||
          !part.at("text").is_string()) {
        refuse(400, "a message must be text, got a part of another type.");
      }
      text += part.at("text").get<std::string>();
    }
    message["content"] = text;
  }
  return messages;
}

Reply answer_chat(const Service& service, const Call& call) {
  ServedModel& model = service.model_for(call, kContinuesText);
  if (!model.talks()) {
    refuse(400, "the model '", model.name(),
           "' has no chat template; /v1/completions continues "
           "texts.");
  }
  Wanted wanted(service, model, call, service.arguments().max_tokens);
  const ChatAnswers& chat = model.chat();
  if (!chat.end.empty()) wanted.stop.push_back(chat.end);
  // Without a limit the answer may fill the positions that the prompt leaves.
  const bool limited = call.has("max_tokens") || call.has("max_completion_tokens") ||
                       model.config().generation.max_new_tokens > 0;
  if (!limited) wanted.options.max_new_tokens = 0;
  const auto generator = std::make_shared<const TextGenerator>(model.texts(), wanted.options,
                                                               wanted.stop, chat.reader);
  Json record = {{chat.messages, messages_of(call.body.at("messages"))}};
  if (call.has("tools")) record["tools"] = call.body.at("tools");
  const ReadPrompt prompt = read_prompt(*generator, chat.prompt(json_text(record), "the request"));
  auto answering = std::make_shared<Answering>();
  answering->admitted = std::make_unique<Service::Admitted>(service, wanted.n);
  answering->id = fresh_id("chatcmpl");
  answering->object = "chat.completion";
  answering->model = model.name();
  answering->whole = [](size_t i, const Choice& choice) -> Json {
    return {{"index", i},
            {"message", {{"role", "assistant"}, {"content", std::string(strip(choice.text))}}},
            {"logprobs", nullptr},
            {"finish_reason", choice.finish_reason}};
  };
  answering->part = [](size_t i, const std::string* text, const char* reason) -> Json {
    Json delta = Json::object();
    if (text != nullptr) delta = {{"role", "assistant"}, {"content", *text}};
    return {{"index", i},
            {"delta", std::move(delta)},
            {"logprobs", nullptr},
            {"finish_reason", reason != nullptr ? Json(reason) : Json()}};
  };
  answering->continuations = std::make_unique<Continuations>(
      model, generator, std::vector<std::vector<int32_t>>{prompt.ids}, wanted, call.end);
  if (wanted.stream) return streamed_reply(answering, call, "/v1/chat/completions");
  return whole_reply(*answering);
}

}  // namespace

extern const Endpoint kCompletionsEndpoint{
    "POST", "/v1/completions", "Continue a prompt or several (as OpenAI)",
    continuation_fields({{"prompt", FieldType::kPrompts, "texts, or tokens of the model", true},
                         {"echo", FieldType::kBoolean, "the prompt, too, in front"},
                         {"logprobs", FieldType::kInteger,
                          "1: log-probabilities of the tokens, and the best token of the prompt's "
                          "places"}}),
    answer_completions};

extern const Endpoint kChatEndpoint{
    "POST", "/v1/chat/completions",
    "Answer the last message of a talk, with the chat template of the model (as OpenAI)",
    continuation_fields({{"messages", FieldType::kMessages, "role and content of each", true},
                         {"max_completion_tokens", FieldType::kInteger, "as max_tokens"},
                         {"tools", FieldType::kMessages, "a variable of the chat template"}}),
    answer_chat};

}  // namespace tapestry
