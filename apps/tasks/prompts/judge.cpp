#include "apps/tasks/prompts/judge.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using File = std::unique_ptr<FILE, decltype([](FILE* file) { std::fclose(file); })>;

// A file without a name, which ends with the object.
File question_file(const std::vector<AnswerToJudge>& answers) {
  File file(std::tmpfile());
  bool written = file != nullptr;
  for (const AnswerToJudge& one : answers) {
    const nlohmann::ordered_json object = {
        {"prompt", one.prompt}, {"reference", one.reference}, {"answer", one.answer}};
    const std::string line =
        object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
    written = written && std::fwrite(line.data(), 1, line.size(), file.get()) == line.size();
  }
  if (written && std::fflush(file.get()) == 0) return file;
  fail(ErrorKind::kRuntime, "[judge] cannot write ", answers.size(),
       " answers to a temporary file: ", std::strerror(errno), '.');
}

// Of a program that never ends no more is read than answers can need.
std::string output_of(const std::string& command, FILE* input, size_t answers) {
  const size_t most_bytes = (answers + 1) << 12;
  FILE* const pipe = popen(concat("{ ", command, "\n} < /dev/fd/", fileno(input)).c_str(), "r");
  if (pipe == nullptr) fail(ErrorKind::kRuntime, "[judge] cannot start '", command, "'.");
  std::string output;
  std::array<char, 4096> part{};
  for (size_t size = 0; (size = fread(part.data(), 1, part.size(), pipe)) > 0;) {
    output.append(part.data(), size);
    if (output.size() <= most_bytes) continue;
    pclose(pipe);  // it gets SIGPIPE
    fail(ErrorKind::kData, "[judge] expected a line for each of ", answers, " answers, '", command,
         "' wrote more than ", most_bytes, " bytes.");
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  fail(ErrorKind::kData, "[judge] '", command, "' ended with ",
       WIFEXITED(status) ? concat("exit code ", WEXITSTATUS(status))
                         : concat("signal ", WTERMSIG(status)),
       " after ", std::ranges::count(output, '\n'), " lines.");
}

}  // namespace

std::vector<double> judge(const std::string& command, const std::vector<AnswerToJudge>& answers) {
  const File questions = question_file(answers);
  std::istringstream lines(output_of(command, questions.get(), answers.size()));
  std::vector<double> verdicts;
  for (std::string line; std::getline(lines, line);) {
    const std::string text(strip(line));
    double value = text == "true" ? 1 : 0;
    const bool known = text == "true" || text == "false" ||
                       (parse_number(text, value) && value >= 0 && value <= 1);
    if (!known) {
      constexpr size_t kShown = 80;
      fail(ErrorKind::kData, "[judge] line ", verdicts.size() + 1, " of '", command,
           "': expected a number from 0 to 1, true or false, got '", text.substr(0, kShown), "'.");
    }
    verdicts.push_back(value);
  }
  if (verdicts.size() == answers.size()) return verdicts;
  fail(ErrorKind::kData, "[judge] expected a line for each of ", answers.size(), " answers, '",
       command, "' wrote ", verdicts.size(), '.');
}

}  // namespace tapestry
