// One function per command group: each adds its subcommands, whose callbacks leave the exit status
// in `status`. 0: done. 1: something did not go as asked, and standard error says what to do. 2:
// wrong usage. 130: stopped by Ctrl-C or SIGTERM before all was done.
#pragma once

#include <CLI/CLI.hpp>

namespace twofold::cli {

void add_demo(CLI::App& app, int& status);          // demo
void add_system(CLI::App& app, int& status);        // up, down, kill, start
void add_submit(CLI::App& app, int& status);        // submit
void add_order(CLI::App& app, int& status);         // order
void add_interactive(CLI::App& app, int& status);   // begin, enlist, work, commit, rollback
void add_transactions(CLI::App& app, int& status);  // list, show
void add_inspect(CLI::App& app, int& status);       // scan, in-doubt, locks, stats
void add_drain(CLI::App& app, int& status);         // drain

}  // namespace twofold::cli
