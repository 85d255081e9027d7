# frozen_string_literal: true

require_relative "config"
require_relative "fake"
require_relative "rack"
require_relative "rails/view_helper"
require_relative "rails/railtie"
