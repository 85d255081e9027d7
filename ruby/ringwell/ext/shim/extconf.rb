# frozen_string_literal: true

# Needs a compiler for C and Ruby's headers: without them mkmf ends the process. ext/Rakefile runs it.
require "mkmf"

# What it is compiled for is in its path: another Ruby must not load it.
create_makefile("ringwell/engine/#{RbConfig::CONFIG["ruby_version"]}/shim")
