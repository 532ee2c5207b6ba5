#include "apps/commands/serve/served_model.h"

#include <algorithm>
#include <utility>

#include "apps/commands/serve/http_error.h"
#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/least_risk.h"
#include "core/base/error.h"
#include "data/corpora/empty_text.h"

namespace tapestry {
namespace {

// A search has the same rows whatever the requests' seeds, limits and numbers of answers are.
SearchOptions shared_options(SearchOptions options) {
  const SearchOptions usual;
  options.seed = usual.seed;
  options.max_new_tokens = usual.max_new_tokens;
  if (options.do_sample) options.n_best = 1;
  return options;
}

bool is_same(const JoinedSearch::Setup& a, const JoinedSearch::Setup& b) {
  return a.options == b.options && a.task.more_ends == b.task.more_ends &&
         a.task.banned == b.task.banned && a.has_constraints == b.has_constraints &&
         a.task.log_probabilities == b.task.log_probabilities &&
         a.task.token_log_probabilities == b.task.token_log_probabilities;
}

// The number of a draw's sequence, as Prompts counts those of SearchTask::draws.
int64_t sequence_of(int64_t sentence, int64_t draw) { return sentence + (draw << 40); }

// The ids of a text, which must not be longer than the model reads.
void check_length(const std::vector<int32_t>& ids, int64_t most, const char* what) {
  if (std::ssize(ids) <= most) return;
  refuse(400, "the ", what, " has ", ids.size(), " tokens, the model reads at most ", most, '.');
}

// What a request asks of a search.
struct Asked {
  JoinedSearch::Setup setup;
  std::vector<SearchRequest> requests;
  std::vector<size_t> lines;  // of the requests
};

JoinedSearch::Setup setup_of(const Translator& pairs, const SearchOptions& drawing,
                             bool has_constraints) {
  const PairRows& around = pairs.rows();
  const PairModels& models = pairs.models();
  JoinedSearch::Setup setup{
      .options = shared_options(drawing),
      .steps = [&models](const SourceRows& rows) { return translation_steps(models, rows); },
      .filler = around.source_filler,
      .has_prefixes = !around.target.before.empty(),
      .has_penalised = drawing.repetition_penalty != 1,
      .has_constraints = has_constraints,
      .device = device_of(models)};
  setup.task.bos_id = around.start;
  setup.task.eos_id = around.eos;
  setup.task.more_ends = around.more_ends;
  setup.task.banned = around.banned;
  if (has_constraints) setup.task.edges = pairs.edges();
  // Beams are compared by them anyway, and of one answer nobody asks for them.
  setup.task.log_probabilities = drawing.do_sample;
  return setup;
}

// A request for each draw of each line that is not empty. `required` may be null.
Asked asked_of(const Translator& pairs, const std::vector<std::string>& lines,
               const SearchOptions& drawing, RequiredTexts* required, const CallEnd& end) {
  const PairRows& around = pairs.rows();
  const bool constrained = required != nullptr && required->any();
  Asked asked{.setup = setup_of(pairs, drawing, constrained), .requests = {}, .lines = {}};
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string read = required != nullptr ? required->source(lines[i]) : lines[i];
    Sentences one{.rows = around, .sources = {pairs.tokenizers().source->encode(read)}};
    const std::vector<int32_t>& ids = one.sources[0];
    if (is_empty_text(lines[i], ids)) continue;
    check_length(ids, pairs.longest() - around.source.size(), "text");
    if (constrained) required->add(lines[i], static_cast<int64_t>(i) + 1, one);
    pairs.choose_words(one);
    SearchRequest request{.source = in_frame(around.source, ids),
                          .prefix = around.target.before,
                          .seed = drawing.seed,
                          .cancelled = end.cancelled};
    if (!one.chosen.empty()) request.chosen = std::move(one.chosen[0]);
    if (constrained) request.constraints = std::move(one.constraints[0]);
    asked.setup.has_chosen = !request.chosen.empty();
    request.penalised = penalised_words(pairs.models(), request.source, around.eos, drawing);
    request.max_length = length_limit(std::ssize(request.source), std::ssize(request.prefix),
                                      request.constraints, pairs.longest(), drawing);
    const int64_t draws = drawing.do_sample ? drawing.n_best : 1;
    for (int64_t draw = 0; draw < draws; ++draw) {
      asked.requests.push_back(request);
      asked.requests.back().sequence_id = sequence_of(static_cast<int64_t>(i), draw);
      asked.lines.push_back(i);
    }
  }
  return asked;
}

}  // namespace

void FoundTexts::set(size_t text, std::vector<Hypothesis> found) {
  const std::lock_guard lock(mutex_);
  auto& all = found_[text];
  std::ranges::move(found, std::back_inserter(all));
  if (--left_ == 0) changed_.notify_all();
}

void FoundTexts::fail(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (problem_.empty()) problem_ = problem;
  changed_.notify_all();
}

std::vector<std::vector<Hypothesis>> FoundTexts::wait(const CallEnd& end) {
  std::unique_lock lock(mutex_);
  wait_for_answer(changed_, lock, end, [&] { return left_ == 0 || !problem_.empty(); });
  if (problem_.empty()) return std::move(found_);
  refuse_failed(end, problem_);
}

void check_served(const Config& config, const std::string& path) {
  const bool images = examples_of(config).of_images();
  const bool masked = config.task->can(kFillsMasks) && !traits_of(config.model_type).writes;
  constexpr auto kOthers = static_cast<Ability>(kTranslates | kContinuesText | kFindsClasses |
                                                kRatesTexts | kFindsAnswers | kEmbedsTexts);
  if (config.task->can(kOthers) || masked || (config.task->can(kClassifies) && !images)) return;
  fail(ErrorKind::kConfig, "[serve] ", path, " is of task ", config.task->name,
       images ? " and of images" : "", ", which is not served.");
}

ServedModel::ServedModel(std::string name, const std::string& path, const Options& options)
    : name_(std::move(name)), options_(options) {
  ModelFiles files = read_model_files(path);
  config_ = files.config;
  check_served(config_, path);
  const ModelChoice choice{.paths = {path}, .format = options.format};
  const auto load = [&]<class Model>(std::unique_ptr<Model>& model, Ability ability) {
    model = Model::load(std::move(files), options_.device, "serve", ability, options_.format);
  };
  const bool images = examples_of(config_).of_images();
  if (can(kTranslates)) {
    pairs_.emplace(choice, options_.device, "serve", kTranslates);
    pairs_->use_shortlist(pairs_->config().generation);
  } else if (can(kContinuesText)) {
    texts_.emplace(choice, options_.device, "serve", kContinuesText);
    if (has_chat(*texts_)) chat_ = chat_answers(*texts_);
  } else if (can(kFillsMasks) && !traits_of(config_.model_type).writes) {
    load(masked_, kFillsMasks);
  } else if (can(kClassifies) && !images) {
    load(classifier_, kClassifies);
  } else if (can(kFindsClasses)) {
    load(classifier_, kFindsClasses);
  } else if (can(kRatesTexts)) {
    load(classifier_, kRatesTexts);
  } else if (can(kFindsAnswers)) {
    load(spans_, kFindsAnswers);
  } else if (can(kEmbedsTexts)) {
    load(embedder_, kEmbedsTexts);
  }
}

ServedModel::~ServedModel() = default;

std::shared_ptr<JoinedSearch> ServedModel::search_for(const JoinedSearch::Setup& setup) {
  constexpr size_t kKept = 8;  // threads and places of searches that nobody uses
  auto found = std::ranges::find_if(
      searches_, [&](const auto& search) { return is_same(search->setup(), setup); });
  if (found != searches_.end()) {
    searches_.splice(searches_.begin(), searches_, found);
    return searches_.front();
  }
  for (auto at = searches_.end(); searches_.size() >= kKept && at != searches_.begin();) {
    --at;
    if (!(*at)->is_idle()) continue;
    joined_before_ += (*at)->joined();
    at = searches_.erase(at);
  }
  searches_.push_front(std::make_shared<JoinedSearch>(setup));
  return searches_.front();
}

int64_t ServedModel::joined() const {
  const std::lock_guard lock(mutex_);
  int64_t joined = joined_before_;
  for (const auto& search : searches_) joined += search->joined();
  return joined;
}

std::vector<std::vector<Hypothesis>> ServedModel::translate(const std::vector<std::string>& lines,
                                                            SearchOptions options,
                                                            const CallEnd& end,
                                                            RequiredTexts* required) {
  const int64_t n_best = options.n_best;
  options.validate();
  widen_for_distinct_texts(options);
  const SearchOptions drawing = drawing_options(options);
  Asked asked = asked_of(*pairs_, lines, drawing, required, end);
  asked.setup.places = options_.batch_size;
  std::vector<std::vector<Hypothesis>> answers(lines.size());
  if (asked.requests.empty()) return answers;
  std::vector<Phrases> phrases;
  for (const SearchRequest& request : asked.requests) phrases.push_back(request.constraints);
  const auto found = std::make_shared<FoundTexts>(asked.requests.size());
  {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<JoinedSearch> search = search_for(asked.setup);
    for (size_t i = 0; i < asked.requests.size(); ++i) {
      SearchRequest& request = asked.requests[i];
      request.done = [found, i](std::vector<Hypothesis> one) { found->set(i, std::move(one)); };
      request.failed = [found](const std::string& problem) { found->fail(problem); };
      search->submit(std::move(request));
    }
  }
  auto parts = found->wait(end);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (required != nullptr && required->any() && !parts[i].empty()) {
      required->check(parts[i][0], phrases[i], static_cast<int64_t>(asked.lines[i]) + 1);
    }
    for (Hypothesis& one : parts[i]) {
      drop_front(one, std::ssize(pairs_->rows().target.before));
      answers[asked.lines[i]].push_back(std::move(one));
    }
  }
  for (auto& answer : answers) {
    if (drawing.do_sample) std::ranges::stable_sort(answer, std::greater(), &Hypothesis::score);
    answer = best_translations(std::move(answer), n_best, options, *pairs_->tokenizers().target);
  }
  return answers;
}

std::string ServedModel::text_of(const Hypothesis& translation) const {
  return translated_text(*pairs_->tokenizers().target, translation);
}

std::vector<Score> ServedModel::score(const std::vector<std::string>& sources,
                                      const std::vector<std::string>& targets, const CallEnd& end) {
  ParallelCorpus pairs;
  pairs.rows = pairs_->rows();
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::vector<int32_t> source = pairs_->tokenizers().source->encode(sources[i]);
    const std::vector<int32_t> target = pairs_->tokenizers().target->encode(targets[i]);
    check_length(source, pairs_->longest() - pairs_->rows().source.size(), "source");
    check_length(target, pairs_->longest() - 1, "target");
    pairs.source.push_back(source);
    pairs.target.push_back(target);
  }
  const Turns::Turn turn(computing_, end);
  return tapestry::score(pairs_->models(), pairs, options_.batch_size);
}

void ServedModel::generate(Continuation continuation) {
  const TextGenerator& generator = *continuation.generator;
  JoinedSearch::Setup setup{.options = shared_options(generator.options()),
                            .task = generator.task(),
                            .steps = [this](const SourceRows&) { return texts_->steps(); },
                            .places = options_.batch_size,
                            .device = texts_->first().model.table.device()};
  setup.task.token_log_probabilities = true;
  SearchRequest request{.prompt = std::move(continuation.prompt),
                        .max_length = continuation.most_tokens,
                        .sequence_id = sequence_of(continuation.number, continuation.draw),
                        .seed = generator.options().seed,
                        .cancelled = continuation.end.cancelled,
                        .on_token = std::move(continuation.on_token),
                        .done = std::move(continuation.done),
                        .failed = std::move(continuation.failed)};
  const std::lock_guard lock(mutex_);
  search_for(setup)->submit(std::move(request));
}

}  // namespace tapestry
