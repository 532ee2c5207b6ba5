#include "apps/commands/serve/continuation.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <random>
#include <utility>

#include "apps/commands/serve/http_error.h"

namespace tapestry {

std::vector<Field> continuation_fields(std::vector<Field> own) {
  static const Field kFields[] = {
      {"model", FieldType::kText, "name of a model; without it the first that can do this"},
      {"max_tokens", FieldType::kInteger, "tokens of the answer"},
      {"temperature", FieldType::kNumber,
       "draws tokens at it; 0: the most probable ones; without "
       "it the model's config decides"},
      {"top_p", FieldType::kNumber, "draws from the nucleus of this mass"},
      {"top_k", FieldType::kInteger, "draws among so many tokens"},
      {"n", FieldType::kInteger, "draws of each prompt"},
      {"seed", FieldType::kInteger,
       "of the draws: the same seed gives the same text; without it each request draws anew"},
      {"stop", FieldType::kTextOrTexts, "texts that end the answer, and are left out"},
      {"stream", FieldType::kBoolean, "the answer as server-sent events"},
      {"stream_options", FieldType::kObject, "include_usage: counts of tokens at the end"},
      {"frequency_penalty", FieldType::kNumber, "as in the config"},
      {"presence_penalty", FieldType::kNumber, "as in the config"},
      {"max_repeat", FieldType::kInteger, "as in the config"}};
  own.insert(own.end(), std::begin(kFields), std::end(kFields));
  return own;
}

Wanted::Wanted(const Service& service, const ServedModel& model, const Call& call,
               int64_t usual_tokens)
    : options(model.config().generation),
      stop(call.texts("stop")),
      n(call.integer("n", 1)),
      stream(call.is_true("stream")) {
  options.n_best = 1;
  options.mbr_samples = 0;
  const double temperature = call.number("temperature", options.temperature);
  if (call.has("temperature") && temperature == 0) {
    options.do_sample = false, options.num_beams = 1;
  } else if (call.has("temperature") || call.has("top_p") || call.has("top_k")) {
    options.do_sample = true, options.num_beams = 1;
    options.temperature = temperature;
  }
  options.top_p = call.number("top_p", options.top_p);
  options.top_k = call.integer("top_k", options.top_k);
  options.frequency_penalty = call.number("frequency_penalty", options.frequency_penalty);
  options.presence_penalty = call.number("presence_penalty", options.presence_penalty);
  options.max_repeat = call.integer("max_repeat", options.max_repeat);
  options.seed = call.seed() ? *call.seed() : std::random_device()();
  const int64_t most = service.options().max_tokens;
  const char* const field =
      call.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  const int64_t usual = options.max_new_tokens > 0 ? options.max_new_tokens : usual_tokens;
  most_tokens = call.integer(field, std::min(usual, most));
  if (most_tokens < 0 || most_tokens > most) {
    refuse(400, "the field '", field, "' must be in [0, ", most, "] (--max-tokens), got ",
           most_tokens, '.');
  }
  options.max_new_tokens = most_tokens;
  options.min_new_tokens = std::min(options.min_new_tokens, std::max<int64_t>(0, most_tokens));
  if (n < 1 || n > 128) refuse(400, "the field 'n' must be in [1, 128], got ", n, '.');
  if (n > 1 && !options.do_sample) {
    refuse(400, "the field 'n' must be 1 where nothing is drawn, got ", n,
           "; a temperature draws.");
  }
  for (const std::string& text : stop) {
    if (text.empty()) refuse(400, "the field 'stop' must not have an empty text.");
  }
  options.validate();
}

// What searches and the thread of the request share: the searches may outlive the request.
struct Continuations::Shared {
  struct Event {
    size_t choice;
    GrownPart grown = {};  // so far
    bool ended = false;
    std::vector<Hypothesis> found = {};
  };

  std::shared_ptr<const TextGenerator> generator;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  std::string problem;

  void push(Event event) {
    {
      const std::lock_guard lock(mutex);
      events.push_back(std::move(event));
    }
    changed.notify_one();
  }
  void fail(const std::string& text) {
    {
      const std::lock_guard lock(mutex);
      problem = text;
    }
    changed.notify_one();
  }
  Event pop(const CallEnd& end) {
    std::unique_lock lock(mutex);
    wait_for_answer(changed, lock, end, [&] { return !events.empty() || !problem.empty(); });
    if (!problem.empty()) refuse_failed(end, problem);
    Event event = std::move(events.front());
    events.pop_front();
    return event;
  }
};

Continuations::Continuations(ServedModel& model, std::shared_ptr<const TextGenerator> generator,
                             std::vector<std::vector<int32_t>> prompts, const Wanted& wanted,
                             const CallEnd& end)
    : model_(model),
      prompts_(std::move(prompts)),
      wanted_(wanted),
      end_(end),
      shared_(std::make_shared<Shared>()) {
  shared_->generator = std::move(generator);
}

Continuations::~Continuations() { end_.cancelled->store(true); }

int64_t Continuations::prompt_tokens() const {
  int64_t tokens = 0;
  for (const auto& prompt : prompts_) tokens += std::ssize(prompt);
  return tokens;
}

void Continuations::start(size_t choice) {
  const size_t number = choice / static_cast<size_t>(wanted_.n);
  const Prompt prompt{.ids = prompts_[number]};
  ServedModel::Continuation one;
  one.generator = shared_->generator;
  one.prompt = prompt.ids;
  one.end = end_;
  one.number = static_cast<int64_t>(number);
  one.draw = static_cast<int64_t>(choice) % wanted_.n;
  one.most_tokens =
      std::min(shared_->generator->limit(prompt), std::max<int64_t>(1, wanted_.most_tokens));
  const auto shared = shared_;
  const bool watches = wanted_.stream || !wanted_.stop.empty() || model_.talks();
  if (watches) {
    one.on_token = [shared, prompt, choice, streams = wanted_.stream,
                    with_tokens = wanted_.with_tokens,
                    sent = size_t{0}](const std::vector<int32_t>& generated) mutable {
      bool ended = false;
      const std::string text = shared->generator->settled_text(prompt, generated, ended);
      if (streams && text.size() > sent) {
        sent = text.size();
        shared->push(
            {.choice = choice, .grown = {text, with_tokens ? generated : std::vector<int32_t>()}});
      }
      return ended;
    };
  }
  one.done = [shared, choice](std::vector<Hypothesis> found) {
    shared->push({.choice = choice, .ended = true, .found = std::move(found)});
  };
  one.failed = [shared](const std::string& problem) { shared->fail(problem); };
  model_.generate(std::move(one));
}

void Continuations::run(const std::function<void(size_t, const GrownPart&)>& grown,
                        const std::function<void(size_t, const Choice&)>& ended) {
  const size_t choices = prompts_.size() * static_cast<size_t>(wanted_.n);
  std::vector<size_t> sent(choices, 0);
  for (size_t i = 0; i < choices; ++i) start(i);
  for (size_t left = choices; left > 0;) {
    Shared::Event event = shared_->pop(end_);
    const size_t i = event.choice;
    const auto send = [&](const std::string& text, std::vector<int32_t> generated) {
      if (grown && text.size() > sent[i]) grown(i, {text.substr(sent[i]), std::move(generated)});
      sent[i] = std::max(sent[i], text.size());
    };
    if (!event.ended) {
      send(event.grown.text, std::move(event.grown.generated));
      continue;
    }
    if (end_.cancelled->load()) refuse(503, "the answer was cut: the server ends.");
    Choice choice{.found = std::move(event.found.at(0))};
    const Prompt prompt{.ids = prompts_[i / static_cast<size_t>(wanted_.n)]};
    choice.text = shared_->generator->text_of(prompt, choice.found);
    bool stopped = false;
    shared_->generator->settled_text(prompt, choice.found.tokens, stopped);
    if (stopped || choice.found.has_eos) choice.finish_reason = "stop";
    send(choice.text, choice.found.tokens);
    ended(i, choice);
    --left;
  }
}

}  // namespace tapestry
