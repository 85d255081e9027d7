# frozen_string_literal: true

# Needs a C compiler and Ruby's headers: without them mkmf ends the process. ext/Rakefile runs it.
require "mkmf"

# The path names Ruby's version and platform: another Ruby must not load it.
create_makefile("ringwell/engine/#{RbConfig::CONFIG["ruby_version"]}/shim")
