# frozen_string_literal: true

require_relative "../package/package"

namespace :gem do
  desc "Build the gem with its engine for a Rust target, by default this machine's, into pkg/"
  task(:native, [:target]) { |_, given| puts Package.native(given[:target] || Package.host) }

  desc "Build the gem that compiles its engine during installation, if cargo is available"
  task(:source) { puts Package.source }
end
