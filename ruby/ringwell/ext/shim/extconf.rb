# frozen_string_literal: true

# Needs a C compiler and Ruby's headers; without them, mkmf ends the process. Run by ext/Rakefile.
require "mkmf"

# The path contains Ruby's version, so that another version does not load the shim.
create_makefile("ringwell/engine/#{RbConfig::CONFIG["ruby_version"]}/shim")
