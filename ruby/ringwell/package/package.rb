# frozen_string_literal: true

require "fileutils"
require "rubygems/package"
require "tmpdir"
require_relative "engine"
require_relative "licences"

# Builds gems into pkg/: with a compiled engine for one platform, or with the engine's source.
module Package
  GEM = File.expand_path("..", __dir__)
  # The RubyGems platform of each Rust target.
  PLATFORMS = {
    "x86_64-unknown-linux-gnu" => "x86_64-linux-gnu",
    "x86_64-unknown-linux-musl" => "x86_64-linux-musl",
    "aarch64-unknown-linux-gnu" => "aarch64-linux-gnu",
    "aarch64-unknown-linux-musl" => "aarch64-linux-musl",
    "x86_64-apple-darwin" => "x86_64-darwin",
    "aarch64-apple-darwin" => "arm64-darwin"
  }.freeze

  class << self
    # This machine's target.
    def host = IO.popen(%w[rustc -vV], &:read)[/^host: (.*)/, 1]

    # Builds a gem that contains an engine.
    #
    # @param target [String] one of {PLATFORMS}
    # @param library [String, nil] a compiled engine, instead of building one
    # @return [String] its path
    def native(target, library: ENV["RINGWELL_EMBED"])
      platform = PLATFORMS.fetch(target) { abort "no gem for #{target}: #{PLATFORMS.keys.join(", ")}" }
      library ||= Engine.build(target)
      build do |spec|
        name = "lib/ringwell/engine/libringwell_embed#{File.extname(library)}"
        FileUtils.cp(library, name)
        File.write("LICENSES-ENGINE.txt", Licences.text(target))
        spec.files += [name, "LICENSES-ENGINE.txt"]
        # The platform is given in parts, because RubyGems before 3.3.22 drops "gnu" when it parses
        # the whole.
        spec.platform = Gem::Platform.new(platform.split("-"))
        # Older versions of RubyGems install a musl gem on glibc.
        spec.required_rubygems_version = ">= 3.3.22" if platform.end_with?("musl")
      end
    end

    # Builds a gem that compiles its engine during installation.
    #
    # @return [String] its path
    def source
      build { |spec| spec.files += Engine.copy_source("ext/engine") }
    end

    private

    # Builds a gem in a copy of the folder. The block may add files to the specification.
    def build
      Dir.mktmpdir("ringwell-gem") do |folder|
        spec = Dir.chdir(GEM) { Gem::Specification.load("ringwell.gemspec") }.dup
        [*spec.files, "ringwell.gemspec"].each do |file|
          FileUtils.mkdir_p("#{folder}/#{File.dirname(file)}")
          FileUtils.cp("#{GEM}/#{file}", "#{folder}/#{file}")
        end
        FileUtils.mkdir_p("#{GEM}/pkg")
        Dir.chdir(folder) do
          yield spec
          path = "#{GEM}/pkg/#{spec.file_name}"
          Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) { Gem::Package.build(spec, false, false, path) }
          path
        end
      end
    end
  end
end
