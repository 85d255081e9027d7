# frozen_string_literal: true

require "json"

module Package
  # The licences of the crates linked into an engine, for the gem that contains the engine.
  module Licences
    class << self
      # @param target [String] a Rust target
      # @return [String] the linked crates by licence, and the texts
      def text(target)
        packages = linked(target)
        list = packages.map { |one| "#{one["name"]} #{one["version"]}: #{one["license"]}" }
        by_text = packages.flat_map { |one| texts(one).map { |text| [text, one["name"]] } }
          .group_by(&:first).transform_values { |pairs| pairs.map(&:last) }
        "The engine in this gem is linked with:\n\n#{list.join("\n")}\n" +
          by_text.map { |text, names| "\n#{"=" * 78}\n#{names.join(", ")}\n\n#{text}\n" }.join
      end

      private

      # All linked crates except our own.
      def linked(target)
        root = Engine::ROOT
        tree = %W[cargo tree -p #{Engine::CRATE} -e normal --prefix none --locked --target #{target}]
        names = IO.popen(tree, chdir: root, &:read).scan(/^(\S+) v(\S+)/).uniq
        metadata = IO.popen(%W[cargo metadata --format-version 1 --locked --filter-platform #{target}],
          chdir: root, &:read)
        JSON.parse(metadata).fetch("packages")
          .select { |one| one["source"] && names.include?(one.values_at("name", "version")) }
          .sort_by { |one| one["name"] }
      end

      def texts(package)
        folder = File.dirname(package["manifest_path"])
        Dir["#{folder}/{LICENSE,LICENCE,COPYING,NOTICE}*"].select { |file| File.file?(file) }.sort
          .map { |file| File.read(file).scrub.strip }
      end
    end
  end
end
