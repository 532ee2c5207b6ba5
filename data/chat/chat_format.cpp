#include "data/chat/chat_format.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/chat/lost_members.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// Variables of the templates.
constexpr const char* kMessages = "messages";
constexpr const char* kAddPrompt = "add_generation_prompt";
// The member of a record with further variables.
constexpr const char* kFurther = "chat_template_kwargs";

const BuiltInTemplate kBuiltIn[] = {
    {"chatml",
     "{%- for message in messages -%}\n"
     "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
     "{%- endfor -%}\n"
     "{%- if add_generation_prompt -%}\n"
     "{{ '<|im_start|>assistant\\n' }}\n"
     "{%- endif -%}\n",
     {"<|im_start|>", "<|im_end|>"}}};

// The variables of a template for the first `count` messages of a record.
Json variables_of(const ChatFormat& format, const Json& record, const std::string& messages,
                  size_t count, bool prompt) {
  Json variables = {{"tools", nullptr}, {"documents", nullptr}};
  variables.update(Json::parse(format.tokens));
  for (const auto& [name, value] : record.items()) {
    if (name != messages && name != kFurther) variables[name] = value;
  }
  const auto more = record.find(kFurther);
  if (more != record.end() && more->is_object()) variables.update(*more);
  const Json& all = record.at(messages);
  variables[kMessages] =
      Json(Json::array_t(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)));
  variables[kAddPrompt] = prompt;
  return variables;
}

// What is wrong with the members of a record as variables.
std::string variable_problem(const Json& members) {
  for (const auto& [name, value] : members.items()) {
    const bool token = std::ranges::find(kSpecialNames, name) != std::end(kSpecialNames);
    const char* const what = token                        ? "a special token"
                             : is_template_function(name) ? "a function"
                             : name == kAddPrompt         ? "a variable"
                                                          : nullptr;
    if (what != nullptr) {
      return concat("the field '", name, "' has the name of ", what,
                    " of chat templates: no record sets it");
    }
  }
  const auto further = members.find(kFurther);
  if (further == members.end() || further->is_null()) return "";
  if (!further->is_object()) return concat('\'', kFurther, "' must be an object");
  if (further->contains(kMessages)) return concat('\'', kFurther, "' must not have messages");
  return variable_problem(*further);
}

bool is_answer(const Json& message) { return message.at("role") == "assistant"; }

// The text without white space at its end.
std::string_view without_end_space(std::string_view text) {
  const std::string_view kept = strip(text);
  return text.substr(0, static_cast<size_t>(kept.data() + kept.size() - text.data()));
}

// Where a beginning of the text ends in it; white space at that end may differ. Throws if the text
// does not begin so.
int64_t end_of_beginning(const std::string& text, const std::string& beginning,
                         const ChatFormat& format, size_t message) {
  if (text.starts_with(beginning)) return std::ssize(beginning);
  const std::string_view kept = without_end_space(beginning);
  if (!kept.empty() && text.starts_with(kept)) return std::ssize(kept);
  fail(
      ErrorKind::kData, "[chat template] ", format.chat.name(),
      " does not tell which text is the assistant's: what it writes of the messages before number ",
      message + 1,
      " of a talk, or up to it, is no beginning of the whole text. Put {% generation %} around the "
      "assistant's words, or learn the last_answer or the whole text (data.loss_on).");
}

// By the texts of the beginnings of the talk.
std::vector<std::pair<int64_t, int64_t>> answers_by_prefixes(const ChatFormat& format,
                                                             const Json& record,
                                                             const std::string& messages,
                                                             const std::string& text) {
  const Json& all = record.at(messages);
  std::vector<std::pair<int64_t, int64_t>> answers;
  for (size_t i = all.size(); i-- > 0;) {
    if (!is_answer(all[i])) continue;
    const auto beginning = [&](size_t count, bool prompt) {
      const Json variables = variables_of(format, record, messages, count, prompt);
      return end_of_beginning(text, format.chat.render(variables).text, format, i);
    };
    const int64_t begin = beginning(i, true);
    const int64_t end = i + 1 == all.size() ? std::ssize(text) : beginning(i + 1, false);
    answers.emplace_back(begin, std::max(begin, end));
    if (format.loss_on == LossOn::kLastAnswer) break;
  }
  std::ranges::reverse(answers);
  return answers;
}

}  // namespace

std::span<const BuiltInTemplate> built_in_templates() { return kBuiltIn; }

const ChatTemplate& usual_chat_template() {
  static const ChatTemplate kUsual(kBuiltIn[0].source, kBuiltIn[0].name);
  return kUsual;
}

std::vector<std::string> special_texts(const ChatFormat& format) {
  std::vector<std::string> texts;
  const Json tokens = Json::parse(format.tokens);
  for (const auto& [name, text] : tokens.items()) {
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::string talk_problem(const Json& record, const std::string& messages, bool answered) {
  if (!record.is_object()) return "a talk must be a JSON object";
  const auto all = record.find(messages);
  if (all == record.end()) return concat("no field '", messages, '\'');
  if (!all->is_array() || all->empty())
    return concat('\'', messages, "' must be a list of messages");
  for (size_t i = 0; i < all->size(); ++i) {
    const Json& message = (*all)[i];
    const std::string who = concat("message ", i + 1, " of '", messages, "' ");
    if (!message.is_object()) return who + "must be an object";
    const auto role = message.find("role");
    if (role == message.end()) {
      return concat(who, "has no 'role'", message.contains("from") ? " but 'from'" : "");
    }
    if (!role->is_string() || role->get_ref<const std::string&>().empty()) {
      return who + "must have a text as its role";
    }
    const auto content = message.find("content");
    if (content == message.end() && !message.contains("tool_calls"))
      return who + "has no 'content'";
    if (content != message.end() && !content->is_string() && !content->is_array() &&
        !content->is_null()) {
      return who + "must have a text or a list of parts as its content";
    }
  }
  if (answered && std::ranges::none_of(*all, is_answer)) return "no message of the assistant";
  return variable_problem(record);
}

Talk talk_of(const ChatFormat& format, const Json& record, const std::string& messages) {
  const size_t count = record.at(messages).size();
  RenderedChat rendered =
      format.chat.render(variables_of(format, record, messages, count, /*prompt=*/false));
  Talk talk{.text = std::move(rendered.text), .answers = {}};
  if (format.loss_on == LossOn::kText) {
    talk.answers = {{0, std::ssize(talk.text)}};
  } else if (format.chat.marks_answers()) {
    talk.answers = std::move(rendered.generated);
    if (format.loss_on == LossOn::kLastAnswer && talk.answers.size() > 1) {
      talk.answers = {talk.answers.back()};
    }
  } else {
    talk.answers = answers_by_prefixes(format, record, messages, talk.text);
  }
  return talk;
}

std::string chat_prompt(const ChatFormat& format, const Json& record, const std::string& messages) {
  const size_t count = record.at(messages).size();
  return format.chat.render(variables_of(format, record, messages, count, /*prompt=*/true)).text;
}

std::string compare_talks(const ChatFormat& format, const Json& record,
                          const ComparedFields& fields, ComparedTalks& compared) {
  Json talks[2];
  for (const auto& [name, talk] :
       {std::pair{&fields.chosen, &talks[0]}, std::pair{&fields.rejected, &talks[1]}}) {
    *talk = record;
    for (const std::string* part : {&fields.prompt, name}) {
      if (part->empty()) continue;
      std::string problem = talk_problem(record, *part, /*answered=*/part == name);
      if (problem.empty()) problem = lost_member(format, record, *part);
      if (!problem.empty()) return problem;
    }
    Json messages = fields.prompt.empty() ? Json::array() : record.at(fields.prompt);
    for (const Json& message : record.at(*name)) messages.push_back(message);
    for (const std::string* part : {&fields.prompt, &fields.chosen, &fields.rejected}) {
      talk->erase(*part);
    }
    (*talk)[kMessages] = std::move(messages);
  }
  const Json& chosen = talks[0].at(kMessages);
  const Json& rejected = talks[1].at(kMessages);
  const size_t least = std::min(chosen.size(), rejected.size());
  size_t common = 0;
  while (common < least && chosen[common] == rejected[common]) ++common;
  if (common == least) {
    return concat("the talks of '", fields.chosen, "' and '", fields.rejected,
                  chosen.size() == rejected.size() ? "' are equal" : "' begin alike, and one ends");
  }
  if (common == 0) {
    return concat("the talks of '", fields.chosen, "' and '", fields.rejected,
                  "' have no message in common, to which they answer");
  }
  if (!is_answer(chosen[common]) || !is_answer(rejected[common])) {
    return concat("message ", common + 1,
                  ", in which the talks differ first, is not the assistant's");
  }
  compared.prompt =
      format.chat.render(variables_of(format, talks[0], kMessages, common, /*prompt=*/true)).text;
  for (const auto& [talk, rest] :
       {std::pair{&talks[0], &compared.chosen}, std::pair{&talks[1], &compared.rejected}}) {
    const size_t count = talk->at(kMessages).size();
    const std::string text =
        format.chat.render(variables_of(format, *talk, kMessages, count, /*prompt=*/false)).text;
    const int64_t begin = end_of_beginning(text, compared.prompt, format, common);
    *rest = text.substr(static_cast<size_t>(begin));
  }
  return "";
}

namespace {

constexpr const char* kMark = "4bd0answer4bd0";

// A talk of these roles, by their first letters; the last answer is kMark.
Json probe(std::string_view roles, bool in_parts) {
  Json messages = Json::array();
  for (size_t i = 0; i < roles.size(); ++i) {
    const bool answer = roles[i] == 'a';
    const Json text = answer ? kMark : "Hello";
    messages.push_back(
        {{"role", answer            ? "assistant"
                  : roles[i] == 's' ? "system"
                                    : "user"},
         {"content", in_parts ? Json::array({{{"type", "text"}, {"text", text}}}) : text}});
  }
  return {{kMessages, std::move(messages)}};
}

// The end of the answer in a talk; "" if it has none, or the template refuses it. A template that
// does not know parts writes the list of them.
std::string end_in(const ChatFormat& format, const Json& talk) {
  try {
    const Talk rendered = talk_of({format.chat, format.tokens, LossOn::kAnswers}, talk, kMessages);
    if (rendered.text.find("'type'") != std::string::npos) return "";
    for (const auto& [begin, end] : rendered.answers) {
      const std::string answer =
          rendered.text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      const size_t at = answer.find(kMark);
      if (at != std::string::npos)
        return std::string(strip(answer.substr(at + std::strlen(kMark))));
    }
  } catch (const Error&) {
  }
  return "";
}

}  // namespace

std::string answer_end(const ChatFormat& format) {
  for (const bool in_parts : {false, true}) {
    for (const char* const roles : {"uau", "suau", "ua", "sua"}) {
      std::string end = end_in(format, probe(roles, in_parts));
      if (!end.empty()) return end;
    }
  }
  return "";
}

}  // namespace tapestry
