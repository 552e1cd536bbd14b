// files.h: temporary folders, and running commands, for tests.
#ifndef WEFT_TESTS_FILES_H
#define WEFT_TESTS_FILES_H

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>

// A folder that goes when the object goes.
struct Folder {
    std::string path;
    Folder()
    {
        std::string pattern = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
        if (!mkdtemp(pattern.data())) std::abort();
        path = pattern;
    }
    Folder(const Folder &) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
    std::string operator/(const std::string &name) const { return path + "/" + name; }
    void write(const std::string &name, const std::string &bytes) const
    {
        std::ofstream(path + "/" + name, std::ios::binary) << bytes;
    }
};

inline std::string read_file(const std::string &path)
{
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

// What a shell command printed (both streams) and its exit code.
struct Output {
    std::string text;
    int exit;
};
inline Output run_command(const std::string &command)
{
    Output out{"", -1};
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    if (!pipe) return out;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        out.text.append(buffer, n);
    int status = pclose(pipe);
    out.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return out;
}

#endif
