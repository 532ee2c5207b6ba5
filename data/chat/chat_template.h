// Chat templates: the text of a talk, as a template in Jinja's language makes it.
//
// The subset of Jinja 3.1 that templates of models use, with the options that transformers sets
// (trim_blocks, lstrip_blocks, loop controls, tojson without escapes of HTML, raise_exception,
// strftime_now, {% generation %}): for, if, set, macro, break, continue, raw; expressions with
// filters, tests, slices, and methods of texts, lists and dictionaries. Not there: extends,
// include, import, block, call, filter blocks, with, recursive loops, caller, varargs.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tapestry {

/// True for the names of functions that templates find: range, raise_exception ...
bool is_template_function(std::string_view name);

/// The text of a talk.
struct RenderedChat {
  std::string text;
  /// The parts inside of generation blocks, which the model is to write: begin and end in bytes.
  std::vector<std::pair<int64_t, int64_t>> generated;
};

class ChatTemplate {
 public:
  /// `name` is for messages: a file or a key. Throws Error(kConfig), "NAME:LINE:COLUMN: what is
  /// wrong.", if the source is none.
  ChatTemplate(const std::string& source, std::string name);

  const std::string& source() const { return source_; }
  const std::string& name() const { return name_; }
  /// True if it says by generation blocks what a model is to write.
  bool marks_answers() const { return marks_answers_; }

  /// Renders with an object of variables: messages, add_generation_prompt, bos_token, tools ...
  /// `now` is what strftime_now() shows. Templates have no access to anything else, and end after a
  /// bounded number of steps. Throws Error(kData), "NAME:LINE:COLUMN: what is wrong.", also where
  /// the template refuses the talk by raise_exception().
  RenderedChat render(const nlohmann::ordered_json& variables, std::time_t now) const;
  RenderedChat render(const nlohmann::ordered_json& variables) const;

 private:
  struct Parsed;

  std::string source_, name_;
  bool marks_answers_ = false;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace tapestry
