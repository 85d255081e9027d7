# frozen_string_literal: true

require_relative "base"
require_relative "rack/answer"
require_relative "rack/app"
require_relative "rack/middleware"
