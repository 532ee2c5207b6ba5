// A trained run in a program of our own: reads lines, and writes for each its translation or
// continuation and the log-probability of that.
#include <iostream>

#include "apps/tasks/answers/trained_model.h"

using namespace tapestry;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const TrainedModel model(argv[1]);
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  const bool translates = model.can(kTranslates);
  std::vector<std::string> texts = translates ? model.translate(lines) : model.generate(lines);
  if (!translates) {
    for (size_t i = 0; i < lines.size(); ++i) texts[i].insert(0, lines[i]);
  }
  const std::vector<Score> scores = translates ? model.score(lines, texts) : model.score(texts);
  for (const std::string& text : texts) std::cout << text << '\n';
  for (const Score& score : scores) {
    std::cout << score.log_probability << '\t' << score.tokens << '\n';
  }
}
