// The page, the state of the server, and the list of its models.
#include <fmt/format.h>

#include "apps/commands/pages/web_page.h"
#include "apps/commands/serve/endpoints.h"
#include "apps/tasks/task.h"
#include "core/build_info.h"

namespace tapestry {
namespace {

struct AbilityName {
  Ability ability;
  const char* name;
};
constexpr AbilityName kAbilityNames[] = {
    {kTranslates, "translate"}, {kScoresPairs, "score_pairs"}, {kContinuesText, "complete"},
    {kFillsMasks, "fill_mask"}, {kClassifies, "classify"},     {kFindsClasses, "classify"},
    {kRatesTexts, "rate"},      {kFindsAnswers, "answer"},     {kEmbedsTexts, "embed"}};

Reply answer_page(const Service&, const Call&) {
  return {.type = "text/html; charset=utf-8",
          .body = html_of({.title = "Tapestry",
                           .styles = {"serve.css"},
                           .scripts = {"page.js", "serve.js"},
                           .calls = true})};
}

Reply answer_health(const Service&, const Call&) { return json_reply({{"status", "ok"}}); }

std::string text_of(const DoorCounts& counts) {
  const struct {
    const char* name;
    const char* meaning;
    int64_t value;
  } kRows[] = {
      {"connections", "Open connections.", counts.open},
      {"connections_closed_for_others_total", "Closed for --max-connections.", counts.made_room},
      {"connections_timed_out_total", "Closed for --read-timeout.", counts.timed_out},
      {"connections_refused_total", "Whose request cannot be read.", counts.refused},
      {"connections_cut_total", "Closed by the client before its answer.", counts.cut}};
  std::string text;
  for (const auto& [name, meaning, value] : kRows) {
    const char* const kind = std::string_view(name).ends_with("_total") ? "counter" : "gauge";
    text += fmt::format("# HELP tapestry_{0} {1}\n# TYPE tapestry_{0} {2}\ntapestry_{0} {3}\n",
                        name, meaning, kind, value);
  }
  return text;
}

Reply answer_metrics(const Service& service, const Call&) {
  std::string joined =
      text_of(service.connections()) +
      "# HELP tapestry_joined_total Requests that joined a search which had others.\n"
      "# TYPE tapestry_joined_total counter\n";
  std::string loaded =
      "# HELP tapestry_model_loaded Whether the model is in memory.\n"
      "# TYPE tapestry_model_loaded gauge\n";
  std::string loads =
      "# HELP tapestry_model_loads_total How often the model was read.\n"
      "# TYPE tapestry_model_loads_total counter\n";
  for (const auto& entry : service.models().entries()) {
    const auto line = [&](const char* what, int64_t value) {
      return fmt::format("tapestry_{}{{model=\"{}\"}} {}\n", what, entry.name, value);
    };
    joined += line("joined_total", entry.joined);
    loaded += line("model_loaded", entry.loaded ? 1 : 0);
    loads += line("model_loads_total", entry.loads);
  }
  joined += loaded + loads;
  return {.type = "text/plain; version=0.0.4",
          .body = service.metrics().text(service.texts_now(), joined)};
}

Reply answer_models(const Service& service, const Call&) {
  Json list = Json::array();
  for (const auto& entry : service.models().entries()) {
    Json abilities = Json::array();
    for (const auto& [ability, name] : kAbilityNames) {
      if (entry.can(ability)) abilities.push_back(name);
    }
    if (entry.facts->talks) abilities.push_back("chat");
    list.push_back({{"id", entry.name},
                    {"object", "model"},
                    {"created", 0},
                    {"owned_by", "tapestry"},
                    {"task", entry.config().task->name},
                    {"abilities", std::move(abilities)},
                    {"loaded", entry.loaded},
                    {"bytes", entry.facts->bytes}});
  }
  return json_reply({{"object", "list"}, {"data", std::move(list)}});
}

Reply answer_openapi(const Service&, const Call&) { return json_reply(openapi()); }

}  // namespace

extern const Endpoint kPageEndpoint{"GET", "/",         "A page to try the models",
                                    {},    answer_page, /*open=*/true};
extern const Endpoint kHealthEndpoint{"GET", "/health",     "200 as soon as requests are answered",
                                      {},    answer_health, /*open=*/true};
extern const Endpoint kMetricsEndpoint{
    "GET", "/metrics", "Counts in Prometheus' text format", {}, answer_metrics};
extern const Endpoint kModelsEndpoint{
    "GET", "/v1/models", "The models and what they can do", {}, answer_models};
extern const Endpoint kOpenapiEndpoint{"GET", "/openapi.json", "This description",
                                       {},    answer_openapi,  /*open=*/true};

}  // namespace tapestry
