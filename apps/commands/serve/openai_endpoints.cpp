// /v1/completions and /v1/chat/completions, as OpenAI's clients call them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/commands/serve/continuation.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/log_probabilities.h"
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
  std::shared_ptr<ServedModel> served;  // first: the others end before it
  std::unique_ptr<Service::Admitted> admitted;
  std::unique_ptr<Continuations> continuations;
  std::string id, object, model;
  int64_t created = unix_seconds();
  /// A choice of the whole answer.
  std::function<Json(size_t i, const Choice& choice)> whole;
  /// A choice of a part of it: of its text, or (no text) of its end.
  std::function<Json(size_t i, const std::string* text, const char* finish_reason, Json logprobs)>
      part;
  std::shared_ptr<const Tokenizer> tokenizer = {};
  WantedScores scores = {};
  CallEnd end = {};
  std::map<size_t, ChoiceScores> of_choices = {};

  ChoiceScores& scores_of(size_t i) {
    const auto found = of_choices.find(i);
    if (found != of_choices.end()) return found->second;
    return of_choices.try_emplace(i, *served, *tokenizer, scores, continuations->prompt_of(i), end)
        .first->second;
  }
  /// Of new tokens, or of those that are left at the end.
  template <class Generated>
  Json logprobs(size_t i, const Generated& generated) {
    if (!scores.any) return nullptr;
    LogProbabilities listed(*tokenizer, scores);
    scores_of(i).add(generated, listed);
    return listed.json();
  }

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
    const auto send_part = [&](size_t i, const std::string* text, const char* reason,
                               Json logprobs) {
      send(event_of(answering->frame(
          kind, Json::array({answering->part(i, text, reason, std::move(logprobs))}))));
    };
    int64_t tokens = 0;
    try {
      answering->continuations->run(
          [&](size_t i, const GrownPart& part) {
            send_part(i, &part.text, nullptr, answering->logprobs(i, part.generated));
          },
          [&](size_t i, const Choice& choice) {
            tokens += std::ssize(choice.found.tokens);
            send_part(i, nullptr, choice.finish_reason, answering->logprobs(i, choice.found));
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

// Writes the choices of /v1/completions.
struct CompletionWriter {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<ReadPrompt> prompts;
  WantedScores wanted = {};
  std::vector<std::vector<PlaceScores>> scores = {};  // of the prompts; none: not asked for
  size_t n = 1;
  bool generates = true, echo = false;

  void add_prompt(const ReadPrompt& prompt, const std::vector<PlaceScores>& places,
                  LogProbabilities& listed) const {
    for (size_t i = static_cast<size_t>(prompt.frame); i < prompt.ids.size(); ++i) {
      if (i == 0) {
        listed.add_first(prompt.ids[0]);
      } else {
        listed.add(places[i - 1]);
      }
    }
  }
  Json write(size_t i, const Choice& choice, ChoiceScores& generated) const {
    const ReadPrompt& prompt = prompts[i / n];
    std::string text = generates ? choice.text : "";
    if (echo) {
      const std::vector<int32_t> own(prompt.ids.begin() + prompt.frame, prompt.ids.end());
      text = tokenizer->decode(own) + text;
    }
    LogProbabilities listed(*tokenizer, wanted);
    if (!scores.empty()) add_prompt(prompt, scores[i / n], listed);
    if (generates) generated.add(choice.found, listed);
    return {{"index", i},
            {"text", text},
            {"logprobs", listed.json()},
            {"finish_reason", choice.finish_reason}};
  }
  static Json part(size_t i, const std::string* text, const char* reason, Json logprobs) {
    return {{"index", i},
            {"text", text != nullptr ? *text : ""},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", reason != nullptr ? Json(reason) : Json()}};
  }
};

// True if the token that is chosen is the best of its place.
bool chooses_best(const SearchOptions& options) {
  return !options.do_sample && options.num_beams == 1 && options.repetition_penalty == 1 &&
         options.frequency_penalty == 0 && options.presence_penalty == 0;
}

// A request to `model`, without its continuations.
std::shared_ptr<Answering> begun(const Service& service, std::shared_ptr<ServedModel> model,
                                 const Call& call, int64_t texts) {
  auto answering = std::make_shared<Answering>();
  answering->admitted = std::make_unique<Service::Admitted>(service, texts);
  answering->model = model->name();
  answering->served = std::move(model);
  answering->end = call.end;
  return answering;
}

Reply answer_completions(const Service& service, const Call& call) {
  constexpr int64_t kUsualTokens = 16;  // OpenAI's
  const auto held = service.model_for(call, kContinuesText);
  ServedModel& model = *held;
  const TextModels& texts = model.texts();
  Wanted wanted(service, model, call, kUsualTokens);
  WantedScores scores = WantedScores::of_completions(call);
  wanted.with_tokens = scores.any;
  if (wanted.stream && call.is_true("echo")) refuse(400, "a stream has no 'echo'.");
  const bool of_talks = examples_of(model.config()).talks && model.talks();
  const auto reader = of_talks ? model.chat().reader : nullptr;
  const auto generator =
      std::make_shared<const TextGenerator>(texts, wanted.options, wanted.stop, reader);
  const auto tokenizer = reader ? reader : texts.first().tokenizers.source;
  CompletionWriter writer{.tokenizer = tokenizer,
                          .prompts = read_prompts(call.body.at("prompt"), *generator, *tokenizer),
                          .wanted = scores,
                          .n = static_cast<size_t>(wanted.n),
                          .generates = wanted.most_tokens > 0,
                          .echo = call.is_true("echo")};
  std::vector<std::vector<int32_t>> ids;
  for (const ReadPrompt& prompt : writer.prompts) {
    if (prompt.ids.empty()) refuse(400, "a prompt must not be empty.");
    ids.push_back(prompt.ids);
  }
  const auto answering = begun(service, held, call, std::ssize(ids) * wanted.n);
  for (const auto& prompt : ids) {
    if (!writer.echo || !scores.any) break;
    writer.scores.push_back(token_scores(model, prompt, scores.top, call.end));
  }
  answering->id = fresh_id("cmpl");
  answering->object = "text_completion";
  answering->tokenizer = tokenizer;
  scores.own_is_best = scores.top == 1 && chooses_best(wanted.options);
  answering->scores = scores;
  Answering* const all = answering.get();  // which holds the function
  answering->whole = [writer, all](size_t i, const Choice& choice) {
    return writer.write(i, choice, all->scores_of(i));
  };
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
      const auto type = part.find("type"), text_of_part = part.find("text");
      if (!part.is_object() || type == part.end() || *type != "text" ||
          text_of_part == part.end() || !text_of_part->is_string()) {
        refuse(400, "a message must be text, got a part of another type.");
      }
      text += text_of_part->get<std::string>();
    }
    message["content"] = text;
  }
  return messages;
}

Reply answer_chat(const Service& service, const Call& call) {
  const auto held = service.model_for(call, kContinuesText);
  ServedModel& model = *held;
  if (!model.talks()) {
    refuse(400, "the model '", model.name(),
           "' has no chat template; /v1/completions continues "
           "texts.");
  }
  Wanted wanted(service, model, call, service.options().max_tokens);
  wanted.with_tokens = WantedScores::of_chat(call).any;
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
  const auto answering = begun(service, held, call, wanted.n);
  answering->id = fresh_id("chatcmpl");
  answering->object = "chat.completion";
  answering->tokenizer = chat.reader;
  answering->scores = WantedScores::of_chat(call);
  Answering* const all = answering.get();  // which holds the function
  answering->whole = [all](size_t i, const Choice& choice) -> Json {
    return {{"index", i},
            {"message", {{"role", "assistant"}, {"content", std::string(strip(choice.text))}}},
            {"logprobs", all->logprobs(i, choice.found)},
            {"finish_reason", choice.finish_reason}};
  };
  answering->part = [](size_t i, const std::string* text, const char* reason,
                       Json logprobs) -> Json {
    Json delta = Json::object();
    if (text != nullptr) delta = {{"role", "assistant"}, {"content", *text}};
    return {{"index", i},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
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
                          "log-probabilities of the tokens, and so many of the best tokens of each "
                          "place, up to 5"}}),
    answer_completions};

extern const Endpoint kChatEndpoint{
    "POST", "/v1/chat/completions",
    "Answer the last message of a talk, with the chat template of the model (as OpenAI)",
    continuation_fields({{"messages", FieldType::kMessages, "role and content of each", true},
                         {"max_completion_tokens", FieldType::kInteger, "as max_tokens"},
                         {"logprobs", FieldType::kBoolean, "log-probabilities of the tokens"},
                         {"top_logprobs", FieldType::kInteger,
                          "so many of the best tokens of each place, too, up to 20"},
                         {"tools", FieldType::kMessages, "a variable of the chat template"}}),
    answer_chat};

}  // namespace tapestry
