#include "apps/commands/cli.h"

int main(int argc, char** argv) { return tapestry::run_command_line(argc, argv); }
