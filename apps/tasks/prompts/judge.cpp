#include "apps/tasks/prompts/judge.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"
#include "data/files/files.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// A file that ends with the object.
class QuestionFile {
 public:
  explicit QuestionFile(const std::vector<AnswerToJudge>& answers) {
    path_ = (std::filesystem::temp_directory_path() / "tapestry-judge-XXXXXX").string();
    const int file = mkstemp(path_.data());
    if (file < 0) {
      fail(ErrorKind::kRuntime, "[judge] cannot make a file in ",
           std::filesystem::temp_directory_path(), ".");
    }
    close(file);
    std::string lines;
    for (const AnswerToJudge& one : answers) {
      const nlohmann::ordered_json object = {
          {"prompt", one.prompt}, {"reference", one.reference}, {"answer", one.answer}};
      lines += object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
    }
    write_file(path_, lines);
  }
  ~QuestionFile() { std::remove(path_.c_str()); }
  QuestionFile(const QuestionFile&) = delete;
  QuestionFile& operator=(const QuestionFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string output_of(const std::string& command, const std::string& input) {
  // The path has no quotes.
  FILE* const pipe = popen(concat("{ ", command, "\n} < '", input, "'").c_str(), "r");
  if (pipe == nullptr) fail(ErrorKind::kRuntime, "[judge] cannot start '", command, "'.");
  std::string output;
  std::array<char, 4096> part{};
  for (size_t size = 0; (size = fread(part.data(), 1, part.size(), pipe)) > 0;) {
    output.append(part.data(), size);
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
  const QuestionFile questions(answers);
  std::istringstream lines(output_of(command, questions.path()));
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
