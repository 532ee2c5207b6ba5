#include "data/tokenizers/parts/post_processors.h"

#include <limits>

#include "core/base/error.h"

namespace tapestry::tokenizers {
namespace {

using Ids = std::vector<int32_t>;

int32_t checked_id(const Part& part, const Part::Json& id) {
  const bool fits = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<int32_t>::max();
  if (!fits) part.refuse(concat("must have ids of tokens, got ", id.dump()));
  return id.get<int32_t>();
}

// ["</s>", 2]
int32_t id_of(const Part& part, const char* key) {
  const Part::Json& pair = part.value(key);
  if (!pair.is_array() || pair.size() != 2) {
    part.refuse(concat("must have a token and its id as ", key));
  }
  return checked_id(part, pair[1]);
}

Frames bert(const Part& part) {
  part.allow({"sep", "cls"});
  const int32_t cls = id_of(part, "cls"), sep = id_of(part, "sep");
  return {{{cls}, {sep}}, TwoTextFrame{{cls}, {sep}, {sep}}};
}

Frames roberta(const Part& part) {
  part.allow({"sep", "cls", "trim_offsets", "add_prefix_space"});
  const int32_t cls = id_of(part, "cls"), sep = id_of(part, "sep");
  return {{{cls}, {sep}}, TwoTextFrame{{cls}, {sep, sep}, {sep}}};
}

Frames byte_level(const Part& part) {
  part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
  return {};
}

// The ids around the texts of a template: one list more than there are texts.
std::vector<Ids> around_texts(const Part& part, const char* key,
                              const std::vector<std::string>& texts) {
  std::vector<Ids> around(1);
  for (const Part& item : part.parts(key)) {
    if (item.has("Sequence")) {
      const std::string id = item.part("Sequence").text("id");
      if (around.size() > texts.size() || id != texts[around.size() - 1]) {
        item.refuse("must have the texts in their order");
      }
      around.emplace_back();
      continue;
    }
    const Part specials = part.part("special_tokens");
    const Part special = specials.part(item.part("SpecialToken").text("id").c_str());
    for (const auto& id : special.value("ids")) around.back().push_back(checked_id(special, id));
  }
  if (around.size() != texts.size() + 1) part.refuse(concat("must have all texts in ", key));
  return around;
}

Frames from_template(const Part& part) {
  part.allow({"single", "pair", "special_tokens"});
  const std::vector<Ids> one = around_texts(part, "single", {"A"});
  Frames frames{{one[0], one[1]}, {}};
  if (part.has("pair")) {
    const std::vector<Ids> two = around_texts(part, "pair", {"A", "B"});
    frames.two = TwoTextFrame{two[0], two[1], two[2]};
  }
  return frames;
}

Frames sequence(const Part& part) {
  part.allow({"processors"});
  Frames frames;
  bool any = false;
  for (const Part& one : part.parts("processors")) {
    Frames more = frames_of(one);
    if (more.one.size() == 0 && !more.two) continue;
    if (any) one.refuse("must be the only one that adds tokens");
    frames = std::move(more);
    any = true;
  }
  return frames;
}

struct Row {
  const char* type;
  Frames (*make)(const Part& part);
};
constexpr Row kTable[] = {{"Sequence", sequence},
                          {"TemplateProcessing", from_template},
                          {"BertProcessing", bert},
                          {"RobertaProcessing", roberta},
                          {"ByteLevel", byte_level}};

}  // namespace

Frames frames_of(const Part& part) {
  const std::string type = part.type();
  for (const Row& row : kTable) {
    if (row.type == type) return row.make(part);
  }
  part.refuse(concat("is of the unknown type ", type));
}

}  // namespace tapestry::tokenizers
