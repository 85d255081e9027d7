# frozen_string_literal: true

require_relative "lib/ringwell/version"

Gem::Specification.new do |spec|
  spec.name = "ringwell"
  spec.version = Ringwell::VERSION
  spec.summary = "Tracking numbers from a Ringwell server: client, engine, Rack, Rails, and a fake for tests"
  spec.description = <<~TEXT
    Ringwell hands out telephone numbers that nobody else holds, and says who held one when it rings. This
    gem asks a server for them, or has the server's engine inside the process; serves the published API in
    Rack; and gives Rails a view helper, webhooks and fakes for tests.
  TEXT
  spec.authors = ["The Ringwell developers"]
  spec.license = "Apache-2.0"
  spec.homepage = "https://github.com/ringwell/ringwell"
  # package/package.rb adds other files, such as an engine.
  spec.files = Dir["{lib,ext,sig,examples}/**/*", "*.md", "LICENSE"].select { |file| File.file?(file) }
    .grep_v(/\.(so|bundle|dylib)\z/)
  # Compiles the native parts. If they cannot be compiled, the installation still succeeds.
  spec.extensions = ["ext/Rakefile"]
  # The oldest Ruby on which the tests run. There are no dependencies at run time.
  spec.required_ruby_version = ">= 3.1"
  spec.metadata = {
    "rubygems_mfa_required" => "true",
    "source_code_uri" => "#{spec.homepage}/tree/main/ruby/ringwell",
    "changelog_uri" => "#{spec.homepage}/blob/main/ruby/ringwell/CHANGELOG.md",
    "documentation_uri" => "#{spec.homepage}/blob/main/ruby/ringwell/README.md",
    "bug_tracker_uri" => "#{spec.homepage}/issues"
  }
end
