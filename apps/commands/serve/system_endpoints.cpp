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
    {kFindsAnswers, "answer"},  {kEmbedsTexts, "embed"}};

Reply answer_page(const Service&, const Call&) {
  return {.type = "text/html; charset=utf-8",
          .body = html_of({.title = "Tapestry",
                           .styles = {"serve.css"},
                           .scripts = {"page.js", "serve.js"},
                           .calls = true})};
}

Reply answer_health(const Service&, const Call&) { return json_reply({{"status", "ok"}}); }

Reply answer_metrics(const Service& service, const Call&) {
  std::string joined =
      "# HELP tapestry_joined_total Requests that joined a search which had others.\n"
      "# TYPE tapestry_joined_total counter\n";
  for (const auto& model : service.models()) {
    joined +=
        fmt::format("tapestry_joined_total{{model=\"{}\"}} {}\n", model->name(), model->joined());
  }
  return {.type = "text/plain; version=0.0.4",
          .body = service.metrics().text(service.texts_now(), joined)};
}

Reply answer_models(const Service& service, const Call&) {
  Json list = Json::array();
  for (const auto& model : service.models()) {
    Json abilities = Json::array();
    for (const auto& [ability, name] : kAbilityNames) {
      if (model->can(ability)) abilities.push_back(name);
    }
    if (model->talks()) abilities.push_back("chat");
    list.push_back({{"id", model->name()},
                    {"object", "model"},
                    {"created", 0},
                    {"owned_by", "tapestry"},
                    {"task", model->config().task->name},
                    {"abilities", std::move(abilities)}});
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
