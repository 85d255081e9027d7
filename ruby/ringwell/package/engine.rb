# frozen_string_literal: true

require "fileutils"

module Package
  # The engine's library: compiled for a target, or as source that another machine compiles.
  module Engine
    ROOT = File.expand_path("../../..", __dir__)
    CRATE = "ringwell-embed"
    # The oldest macOS that Rust's standard library supports on both processors.
    MACOS_MIN = "11.0"
    # The library is compiled once and used for a long time, so it is built with whole-program
    # optimisation and without symbols.
    PROFILE = ["--profile", "dist", "--config", 'profile.dist.strip="symbols"'].freeze

    class << self
      # Compiles the library. Targets of other platforms need their own linker; `cargo zigbuild` is
      # used if it is installed.
      #
      # @return [String] the library
      def build(target)
        command = other?(target) && zigbuild? ? "zigbuild" : "build"
        Dir.chdir(ROOT) do
          system(flags(target), "cargo", command, *PROFILE, "--locked", "-p", CRATE, "--target", target) or
            abort "cannot build the engine for #{target}: is its target installed (rustup target add " \
                  "#{target}), and a linker for it?"
        end
        folder = "#{ENV.fetch("CARGO_TARGET_DIR", "#{ROOT}/target")}/#{target}/dist"
        Dir["#{folder}/libringwell_embed.{so,dylib}"].first or abort "no library in #{folder}"
      end

      # Copies the files that cargo needs, except tests.
      #
      # @param folder [String] below the working directory
      # @return [Array<String>] the files
      def copy_source(folder)
        crates.each do |crate|
          from = "#{ROOT}/crates/#{crate}"
          FileUtils.mkdir_p("#{folder}/crates/#{crate}")
          FileUtils.cp_r("#{from}/src", "#{folder}/crates/#{crate}/src")
          manifest = without_tests(File.read("#{from}/Cargo.toml"))
          File.write("#{folder}/crates/#{crate}/Cargo.toml", manifest)
        end
        File.write("#{folder}/Cargo.toml", workspace)
        FileUtils.cp("#{ROOT}/Cargo.lock", folder)
        File.write("#{folder}/rust-toolchain.toml", toolchain)
        Dir["#{folder}/**/*"].select { |file| File.file?(file) }.grep_v(%r{/tests(/|\.rs\z)})
      end

      # Our own linked crates, according to `cargo tree`.
      def crates
        tree = IO.popen(%W[cargo tree -p #{CRATE} -e normal,build --prefix none --locked], chdir: ROOT, &:read)
        tree.scan(/^(ringwell-\S+)/).flatten.uniq.sort
      end

      private

      def other?(target) = target != Package.host

      def zigbuild? = system("cargo-zigbuild --version", %i[out err] => File::NULL)

      # For musl, Rust by default links programs statically and builds no shared libraries. On
      # macOS, a library contains its path on the machine that linked it. If no version is given,
      # zig's linker requires the newest system.
      def flags(target)
        return rustflags("-C target-feature=-crt-static") if target.end_with?("musl")
        return {} unless target.end_with?("darwin")

        name = "-C link-arg=-Wl,-install_name,@rpath/libringwell_embed.dylib"
        {"MACOSX_DEPLOYMENT_TARGET" => MACOS_MIN, **rustflags(name)}
      end

      def rustflags(more) = {"RUSTFLAGS" => "#{ENV["RUSTFLAGS"]} #{more}".strip}

      def without_tests(manifest)
        manifest.gsub(/^\[(?:dev-dependencies|\[test\]|\[bench\]|\[example\])[^\n]*\n.*?(?=^\[|\z)/m, "")
      end

      def workspace
        File.read("#{ROOT}/Cargo.toml").sub(/^members = .*$/, 'members = ["crates/*"]')
          .gsub(/^(exclude|default-members) = .*\n/, "")
      end

      def toolchain
        channel = File.read("#{ROOT}/rust-toolchain.toml")[/^channel = .*$/]
        "[toolchain]\n#{channel}\nprofile = \"minimal\"\n"
      end
    end
  end
end
