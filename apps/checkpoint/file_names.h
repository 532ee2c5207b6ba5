// The files of a checkpoint, by name. Tokenizers name their own (data/tokenizer.h).
#pragma once

namespace tapestry {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kTrainerStateFile = "trainer_state.json";
/// Only the weights of an update that went wrong have it: what happened.
inline constexpr const char* kIncidentFile = "incident.txt";
/// What the folders of those begin with, in a run folder.
inline constexpr const char* kIncidentPrefix = "incident-";
/// Only a regression has it: the points that it answers from (data/points.h).
inline constexpr const char* kPointsFile = "points.csv";
/// Only a mean of checkpoints has it: which ones went into it.
inline constexpr const char* kAverageFile = "average.json";

}  // namespace tapestry
