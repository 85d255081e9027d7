# frozen_string_literal: true

module Ringwell
  # Of the gem. It works with every server that speaks the published API.
  VERSION = "0.1.0"
end
