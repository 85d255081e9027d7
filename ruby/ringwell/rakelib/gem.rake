# frozen_string_literal: true

require_relative "../package/package"

namespace :gem do
  desc "Build the gem with its engine for a target of Rust, by default this machine's, into pkg/"
  task(:native, [:target]) { |_, given| puts Package.native(given[:target] || Package.host) }

  desc "Build the gem that compiles its engine where it is installed, if cargo is there"
  task(:source) { puts Package.source }
end
