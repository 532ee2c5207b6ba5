// Answers that a user's program judges.
#pragma once

#include <string>
#include <vector>

namespace tapestry {

struct AnswerToJudge {
  std::string prompt, reference, answer;
};

/// Runs `command` by the shell: it reads an object a line, {"prompt": ..., "reference": ...,
/// "answer": ...}, and writes for each a line with a number from 0 to 1, true or false. Returns
/// these, true as 1. Throws Error(kData) if it fails, writes another number of lines, or another
/// line, with its number and what it says.
std::vector<double> judge(const std::string& command, const std::vector<AnswerToJudge>& answers);

}  // namespace tapestry
