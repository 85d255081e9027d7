# frozen_string_literal: true

require_relative "lib/ringwell/version"

Gem::Specification.new do |spec|
  spec.name = "ringwell"
  spec.version = Ringwell::VERSION
  spec.summary = "Numbers from a Ringwell server: client, Rack, Rails, and a fake for tests"
  spec.authors = ["The Ringwell developers"]
  spec.license = "Apache-2.0"
  spec.files = Dir["{lib,ext,sig,examples}/**/*", "README.md"].select { |file| File.file?(file) }
                                                              .grep_v(/\.(so|bundle)\z/)
  # Compiles the shim if it can; where it cannot, installing succeeds all the same.
  spec.extensions = ["ext/Rakefile"]
  # The oldest that the tests run on. No dependency at run time: what there is none of cannot break.
  spec.required_ruby_version = ">= 3.1"
  spec.metadata["rubygems_mfa_required"] = "true"
end
